"""Moves tensors fast, and no wrong byte unnoticed: weights to many receivers, key-value blocks to one.

Usable alone: nothing here knows of runs, rows or engines.
"""
