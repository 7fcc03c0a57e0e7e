"""One module for each tracker's library, which is imported in the tracker's own process only."""
