"""The rows of a run: counted, paged, looked at one by one and exported, with memory bounded whatever their number."""

from __future__ import annotations

from proctor.view.browse.rows.cursors import Cursor
from proctor.view.browse.rows.export import EXPORTS, export_rows
from proctor.view.browse.rows.paging import MOST_ROWS, Neighbours, Page, count, neighbours, page
from proctor.view.browse.rows.query import Query, Sort
from proctor.view.browse.rows.record import attempts_of, lists_of, records_of
from proctor.view.browse.rows.table import RowTable, open_rows

__all__ = [
    "EXPORTS",
    "MOST_ROWS",
    "Cursor",
    "Neighbours",
    "Page",
    "Query",
    "RowTable",
    "Sort",
    "attempts_of",
    "count",
    "export_rows",
    "lists_of",
    "neighbours",
    "open_rows",
    "page",
    "records_of",
]
