"""One pass over the kernels of a large trace, in which every launch leaves SQLite as one number within a long text.

To hand a row to Python costs more than to read it, and to group rows costs SQLite a sort, or a write to a table for
each row. So SQLite joins the numbers of many rows into one text with ``group_concat``, and Python splits and counts
that text without a step of its own for each row. A number holds the kernel, the stream where it is wanted, and the
duration: what is counted is how often each duration came, and all figures that follow are exact. Where durations differ
so much that there would be too many to keep, they go into buckets (`proctor.trace.work.quantiles`): memory is bounded.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from proctor.trace.work.busy import UNKNOWN, Key
from proctor.trace.work.quantiles import Histogram
from proctor.trace.work.scope import Scope

if TYPE_CHECKING:
    from proctor.trace.trace import Trace

ROWS_AT_ONCE = 1 << 14
"""Rows whose numbers are joined into one text: their strings still fit a processor's cache."""
MOST_TEXTS = 400_000
"""Distinct numbers that are kept as texts before they are sorted into histograms."""
MOST_DURATIONS = 500_000
"""Distinct durations of all histograms together before the large ones go into buckets."""
_FEW_DURATIONS = 1024


class Numbered(NamedTuple):
    """The streams of a trace as small numbers: SQL that gives a row its number, the streams, bits of a number."""

    sql: str
    places: Mapping[int, Key]
    bits: int


ANYWHERE = Numbered("0", {}, 0)
"""Streams are not told apart."""


class Chunk(NamedTuple):
    """Some launches in the order of the file; ns.

    Attributes:
        launches: how many there are; those that end before they start have no number.
        keys: the numbers, in decimal.
        starts: the launches' starts, in decimal; empty if not asked for.
    """

    launches: int
    keys: list[str]
    starts: list[str]


class Layout(NamedTuple):
    """How a launch becomes a number: ``(name * streams + stream) * durations + duration``; names may be negative.

    The highest bit of a duration stays free: it is set where a launch ends before it starts.
    """

    duration_bits: int
    numbered: Numbered

    @property
    def mask(self) -> int:
        """The bits of a number that are the duration; those above are the group: one kernel on one stream."""
        return (1 << self.duration_bits) - 1

    def kernel(self, group: int) -> tuple[int, int]:
        """(Id of the name, number of the stream) of a group."""
        return group >> self.numbered.bits, group & ((1 << self.numbered.bits) - 1)

    def sql(self, name: str) -> str:
        """The number of a row of the view ``kernels`` with the alias ``v``. SQLite makes one out of range a real."""
        group = f"({name} * {1 << self.numbered.bits} + {self.numbered.sql})" if self.numbered.bits else name
        return f'{group} * {1 << self.duration_bits} + (v."end" - v.start)'


def layout_of(trace: Trace, numbered: Numbered = ANYWHERE) -> Layout:
    """A layout with room for every duration: the trace's window holds all kernels, whole."""
    first, last = trace.window
    return Layout((last - first).bit_length() + 1, numbered)


def chunks(trace: Trace, layout: Layout, scope: Scope, *, starts: bool) -> Iterator[Chunk]:
    """The launches within `scope`, in the order of the file.

    Raises:
        UserError: the file is damaged.
    """
    plain = f"group_concat({layout.sql('v.name')}), NULL"
    usable = 'CASE WHEN v."end" >= v.start THEN {} END'
    begun = f"group_concat({usable.format('v.start')})" if starts else "NULL"
    careful = f"group_concat({usable.format(layout.sql(f'ifnull(v.name, {UNKNOWN})'))}), {begun}"
    within = f"FROM kernels v WHERE v.id >= :low AND v.id < :high AND {scope.sql}"
    low, last = (trace.one(f"SELECT {edge}(id) FROM kernels") for edge in ("min", "max"))
    rows = ROWS_AT_ONCE
    while low <= last:
        # Row ids usually have no gaps, so that a range of them holds as many rows. Where it did not, rows are counted.
        high = low + ROWS_AT_ONCE if rows > ROWS_AT_ONCE // 2 else _after(trace, low, last)
        bounds = {"low": low, "high": high, **scope.parameters}
        chunk = _chunk(trace, f"SELECT count(*), {careful if starts else plain} {within}", bounds)
        if not starts and len(chunk.keys) < chunk.launches:  # some have no name: every check costs, so only then
            chunk = _chunk(trace, f"SELECT count(*), {careful} {within}", bounds)
        yield chunk
        low, rows = high, chunk.launches


def _chunk(trace: Trace, sql: str, bounds: Mapping[str, int]) -> Chunk:
    rows, keys, starts = next(iter(trace.rows(sql, bounds)))
    return Chunk(rows, keys.split(",") if keys else [], starts.split(",") if starts else [])


def _after(trace: Trace, low: int, last: int) -> int:
    """The row id that lies `ROWS_AT_ONCE` rows after `low`; one more than the last where there are fewer."""
    sql = f"SELECT id FROM kernels WHERE id >= ? ORDER BY id LIMIT 1 OFFSET {ROWS_AT_ONCE}"
    found: int | None = trace.one(sql, (low,))
    return last + 1 if found is None else found


class Counts:
    """How often each duration came, by group, in bounded memory."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._texts: Counter[str] = Counter()
        self._groups: dict[int, Histogram] = {}

    def add(self, keys: Iterable[str]) -> None:
        """Counts launches; those that end before they start are left out.

        Raises:
            ValueError: a name's id is too large to share a number with a duration.
        """
        self._texts.update(keys)
        if len(self._texts) > MOST_TEXTS:
            self._sort_in()

    def groups(self) -> dict[int, Histogram]:
        """Durations by group, when all launches are counted."""
        self._sort_in()
        return self._groups

    def _sort_in(self) -> None:
        by_group: defaultdict[int, dict[int, int]] = defaultdict(dict)
        bits, mask = self._layout.duration_bits, self._layout.mask
        for key, count in zip(map(int, self._texts), self._texts.values(), strict=True):
            by_group[key >> bits][key & mask] = count
        self._texts.clear()
        for group, counts in by_group.items():
            if max(counts) > mask >> 1:
                counts = {duration: count for duration, count in counts.items() if duration <= mask >> 1}
            if group in self._groups:
                self._groups[group].merge(Histogram(counts))
            elif counts:
                self._groups[group] = Histogram(counts)
        if sum(each.distinct for each in self._groups.values()) > MOST_DURATIONS:
            for each in self._groups.values():
                if each.distinct > _FEW_DURATIONS:
                    each.coarsen()


class Lane:
    """A stream or a device while launches come in order of time: how far its work reaches, and ns that ran twice."""

    __slots__ = ("overlap", "reach")

    def __init__(self, start: int) -> None:
        self.reach = start
        self.overlap = 0


class Seen:
    """When a group's first launch began and its last ended, and where it ran."""

    __slots__ = ("device", "first", "last", "stream")

    def __init__(self, start: int, stream: Lane, device: Lane) -> None:
        self.first = self.last = start
        self.stream = stream
        self.device = device


class Times:
    """First starts, last ends and overlaps, from launches in the order of the file.

    Overlaps are right while the file is in order of time, but for rows of one chunk, whose order does not matter.
    Busy time, a union of intervals, is the sum of durations without the overlaps.
    """

    def __init__(self, layout: Layout, device_columns: int) -> None:
        self._layout = layout
        self._width = device_columns
        self._latest: int | None = None
        self.ordered = True
        self.seen: dict[int, Seen] = {}
        self.streams: dict[Key, Lane] = {}
        self.devices: dict[Key, Lane] = {}

    def add(self, chunk: Chunk) -> None:
        """Follows launches."""
        if not chunk.keys:
            return
        keys, starts = list(map(int, chunk.keys)), list(map(int, chunk.starts))
        if sorted(starts) != starts:
            pairs = sorted(zip(starts, keys, strict=True))
            starts, keys = [start for start, _ in pairs], [key for _, key in pairs]
        if self._latest is not None and starts[0] < self._latest:
            self.ordered = False
        self._latest = starts[-1] if self._latest is None else max(self._latest, starts[-1])
        self._follow(keys, starts)
        if not self.ordered:
            for key, start in zip(keys, starts, strict=True):
                at = self.seen[key >> self._layout.duration_bits]
                at.first = min(at.first, start)

    def _follow(self, keys: list[int], starts: list[int]) -> None:
        """The one loop that takes a step of Python for each row: no call within it, and little to do where rows come
        one after another."""
        bits, mask, seen = self._layout.duration_bits, self._layout.mask, self.seen
        for key, start in zip(keys, starts, strict=True):
            try:
                at = seen[key >> bits]
            except KeyError:
                at = self._new(key >> bits, start)
            end = start + (key & mask)
            if end > at.last:
                at.last = end
            lane = at.stream
            if start >= lane.reach:
                lane.reach = end
            elif end > lane.reach:
                lane.overlap += lane.reach - start
                lane.reach = end
            else:
                lane.overlap += end - start
            lane = at.device
            if start >= lane.reach:
                lane.reach = end
            elif end > lane.reach:
                lane.overlap += lane.reach - start
                lane.reach = end
            else:
                lane.overlap += end - start

    def _new(self, group: int, start: int) -> Seen:
        place = self._layout.numbered.places[self._layout.kernel(group)[1]]
        stream = self.streams.setdefault(place, Lane(start))
        device = self.devices.setdefault(place[: self._width], Lane(start))
        self.seen[group] = Seen(start, stream, device)
        return self.seen[group]
