"""Proctor's own command line with a source whose reader dies at chosen rows, as one with a faulty decoder does.

``python -m benchmarks.faults.deadly_reader ROW[,ROW...] run SPEC --json``. Readers of Proctor's own have no such row
that could be asked for in a spec; everything but the source is `proctor` as it is.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from proctor.sources.base import BLOCK_BYTES, ReadGroup, Source


class DeadlySource:
    """Another source; the process that reads one of `rows` dies by SIGSEGV. Implements `sources.base.Source`."""

    def __init__(self, source: Source, rows: frozenset[int]) -> None:
        self._source, self._rows = source, rows

    def expected(self) -> BitMap64:
        """The other source's ids."""
        return self._source.expected()

    def columns(self) -> pa.Schema:
        """The other source's columns."""
        return self._source.columns()

    def groups(self, todo: BitMap64, max_rows: int, max_bytes: int = BLOCK_BYTES) -> Sequence[ReadGroup]:
        """The other source's groups."""
        return self._source.groups(todo, max_rows, max_bytes)

    def read(self, group: ReadGroup) -> Iterator[pa.Table]:
        """The other source's blocks, or the end of this process."""
        if any(row in group.row_ids for row in self._rows):
            os.kill(os.getpid(), signal.SIGSEGV)
        return self._source.read(group)

    def fingerprint(self) -> str:
        """The other source's identity."""
        return self._source.fingerprint()


def main() -> None:
    """Runs ``proctor`` with the arguments after the rows."""
    from proctor.cli import main as proctor
    from proctor.runner import exam

    rows, source_of = frozenset(map(int, sys.argv.pop(1).split(","))), exam.source_of

    def make(*arguments: Any) -> DeadlySource:
        return DeadlySource(source_of(*arguments), rows)

    exam.source_of = make
    proctor()


if __name__ == "__main__":
    from benchmarks.faults.deadly_reader import main as imported_main  # so that workers import the class

    imported_main()
