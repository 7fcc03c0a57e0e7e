"""Compiling parts of a model in place: which parts, how, and what the compiler made of them."""
