"""The doctor: which versions there are, on the driver and on every node, and what a machine lacks."""
