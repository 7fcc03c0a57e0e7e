"""Runs and checkpoints beside each other, row by row: what was found, and the rows to page through."""

from __future__ import annotations

from proctor.view.browse.compare.beside import MOST_SIDES, Beside, put_beside
from proctor.view.browse.compare.board import RANKS
from proctor.view.browse.compare.columns import LETTERS
from proctor.view.browse.compare.opening import given_side
from proctor.view.browse.compare.paging import Cell, Page, Row, count, counts, one, page, row_ids
from proctor.view.browse.compare.place import Place
from proctor.view.browse.compare.wanted import SHOWS, Show, Wanted

__all__ = [
    "LETTERS",
    "MOST_SIDES",
    "RANKS",
    "SHOWS",
    "Beside",
    "Cell",
    "Page",
    "Place",
    "Row",
    "Show",
    "Wanted",
    "count",
    "counts",
    "given_side",
    "one",
    "page",
    "put_beside",
    "row_ids",
]
