"""Runs beside each other: paired by row, judged against limits, and over checkpoints as a learning curve."""
