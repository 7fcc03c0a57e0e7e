"""Everything in one stream ordered by time."""
