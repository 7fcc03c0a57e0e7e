"""Ranges of a program, projected onto what the GPU did for them."""
