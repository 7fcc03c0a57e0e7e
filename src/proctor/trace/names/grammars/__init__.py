"""Grammars of kernels' names, one file a family: each reads a normal form, or returns None."""
