"""Fleets, read within bounds and while a watcher writes: what they are, how their cells stand, and what happened."""
