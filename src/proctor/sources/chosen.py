"""Some rows of a source, as a source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyroaring import BitMap64

from proctor.rows import UserError
from proctor.sources.base import BLOCK_BYTES, ReadGroup, Source

_SHOWN = 5


class SomeRows(ABC):
    """Another source, of which fewer rows are expected. Implements `base.Source`.

    Attributes:
        source: the other one.
    """

    def __init__(self, source: Source) -> None:
        self.source = source

    @abstractmethod
    def expected(self) -> BitMap64:
        """The ids of these rows."""

    def columns(self) -> pa.Schema:
        """The other source's columns."""
        return self.source.columns()

    def groups(self, todo: BitMap64, max_rows: int, max_bytes: int = BLOCK_BYTES) -> Sequence[ReadGroup]:
        """The other source's groups."""
        return self.source.groups(todo, max_rows, max_bytes)

    def read(self, group: ReadGroup) -> Iterator[pa.Table]:
        """The other source's blocks."""
        return self.source.read(group)

    def fingerprint(self) -> str:
        """The other source's identity."""
        return self.source.fingerprint()


class ChosenRows(SomeRows):
    """The rows of a list alone.

    Args:
        source: which has them.
        rows: their ids.
        there: all ids of `source`, if they are known already.

    Raises:
        UserError: the source lacks some of them.
    """

    def __init__(self, source: Source, rows: BitMap64, there: BitMap64 | None = None) -> None:
        known = source.expected() if there is None else there
        if unknown := rows - known:
            raise UserError(f"the source does not have {_named(unknown)}", where="--only", fix=_ids_there(known))
        super().__init__(source)
        self._rows, self.of = rows.serialize(), len(known)

    def expected(self) -> BitMap64:
        """The ids of the list."""
        return BitMap64.deserialize(self._rows)


def _named(ids: BitMap64) -> str:
    """``row 7``, ``rows 7, 8, 9, 10, 11 and 20 more``."""
    first = ", ".join(str(row) for row, _ in zip(ids, range(_SHOWN), strict=False))
    more = f" and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else ""
    return f"{'row' if len(ids) == 1 else 'rows'} {first}{more}"


def _ids_there(known: BitMap64) -> str | None:
    return f"its ids are {known.min()} to {known.max()}" if known else None
