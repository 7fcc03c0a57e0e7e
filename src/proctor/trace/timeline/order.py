"""Rows of a view in order of time, sorting a bounded number of them at once.

Exports are not sure to be in order of time, may not be given an index, and SQLite sorts in memory here (nothing is
written beside a user's file). So a large view is read in slices of time: the boundaries are quantiles of a sample, and
each slice is looked for only among the blocks of row ids that can hold some of it. A file that is nearly in order is
read about twice, a shuffled one once a slice; memory is that of one slice either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from proctor.trace.trace import Trace

SLICE = 300_000
"""Rows that are sorted at once."""
_BLOCK = 50_000
_SAMPLE = 10_000


class Query(NamedTuple):
    """What to read of a view, in order of its ``start``.

    Attributes:
        view: a view of the model; its columns may be written with the alias ``v``.
        columns: SQL expressions. The first is yielded as the time of the row and must be ``v.start``.
        where: SQL conditions on `v`, with ``:name`` for parameters.
        join: SQL that follows ``FROM view AS v``.
        parameters: values of the parameters.
    """

    view: str
    columns: Sequence[str]
    where: str = "1"
    join: str = ""
    parameters: Mapping[str, object] = MappingProxyType({})

    def sql(self, condition: str = "1") -> str:
        """The whole statement, longer rows first among those that start together."""
        return (
            f"SELECT {', '.join(self.columns)} FROM {self.view} AS v {self.join} "
            f"WHERE ({self.where}) AND {condition} "
            'ORDER BY v.start, v."end" IS NOT NULL, v."end" DESC, v.id'
        )


class _Block(NamedTuple):
    first: int
    last: int
    earliest: int
    latest: int


def in_order(trace: Trace, query: Query, *, slice_rows: int = SLICE) -> Iterator[tuple[Any, ...]]:
    """The rows of `query` by start, the longest first (those without an end before all), then as the file has them.

    Rows without a start are left out.

    Raises:
        UserError: the file is damaged where it was read.
    """
    last = trace.one(f"SELECT max(id) FROM {query.view}")
    first = trace.one(f"SELECT min(id) FROM {query.view}")
    if last is None:
        return
    if last - first < slice_rows:
        yield from trace.rows(query.sql("v.start IS NOT NULL"), dict(query.parameters))
        return
    blocks = _blocks(trace, query.view, first, last)
    bounds = _bounds(trace, query.view, blocks, slice_rows)
    condition = "v.id BETWEEN :first_id AND :last_id AND v.start >= :from_time AND v.start < :to_time"
    for low, high in pairwise(bounds):
        inside = [block for block in blocks if block.earliest < high and block.latest >= low]
        if inside:
            limits = {"first_id": inside[0].first, "last_id": inside[-1].last, "from_time": low, "to_time": high}
            yield from trace.rows(query.sql(condition), {**query.parameters, **limits})


def _blocks(trace: Trace, view: str, first: int, last: int) -> list[_Block]:
    """Which span of time each block of row ids holds."""
    found = []
    for begin in range(first, last + 1, _BLOCK):
        end = begin + _BLOCK - 1
        sql = f"SELECT min(start), max(start) FROM {view} WHERE id BETWEEN ? AND ?"
        earliest, latest = next(trace.rows(sql, (begin, end)))
        if earliest is not None:
            found.append(_Block(begin, end, earliest, latest))
    return found


def _bounds(trace: Trace, view: str, blocks: Sequence[_Block], slice_rows: int) -> list[int]:
    """Times that cut the view into slices of about as many rows each; the first and last enclose everything."""
    if not blocks:
        return []
    lowest, highest = min(b.earliest for b in blocks), max(b.latest for b in blocks) + 1
    step = max(1, len(blocks) * _BLOCK // _SAMPLE)
    ids = range(blocks[0].first, blocks[-1].last + 1, step)
    starts = (trace.one(f"SELECT start FROM {view} WHERE id = ?", (number,)) for number in ids)
    sample = sorted(start for start in starts if start is not None)
    slices = max(1, -(-len(blocks) * _BLOCK // slice_rows))
    cuts = {sample[len(sample) * position // slices] for position in range(1, slices)} if sample else set()
    return sorted({lowest, highest, *(cut for cut in cuts if lowest < cut < highest)})
