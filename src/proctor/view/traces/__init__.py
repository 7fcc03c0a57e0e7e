"""Traces as pages show them: which files, which events in which rows, what is drawn, and what two of them tell."""
