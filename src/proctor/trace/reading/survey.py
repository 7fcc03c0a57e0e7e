"""One look over every table before anything is said: extents, rows that cannot be right, processes and devices."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from proctor.trace.model import LATEST
from proctor.trace.views import Repair

ON_GPU = ("kernels", "copies", "memsets", "syncs", "graphs")
TIMED = (*ON_GPU, "calls", "os_calls", "annotations")
_WINDOW = (*ON_GPU, "calls")

_FARTHEST = LATEST - 1
_START = f"typeof(start) = 'integer' AND start >= -{_FARTHEST}"
_END = f'typeof("end") = \'integer\' AND "end" BETWEEN start AND {_FARTHEST}'
_SOUND = f"{_START} AND {_END}"
# Rows that name a category, a thread or a domain have no times; marks and open ranges no end.
_SOUND_OR_OPEN = f'(kind IN (33, 39, 75) OR {_START} AND ({_END} OR "end" IS NULL AND start <= {_FARTHEST}))'
_EXACT_ROWS = 500_000
"""Up to so many launches and calls, each launch is looked up; beyond, only those that precede the first call count."""
_MOST_PROCESSES = 64


class Extent(msgspec.Struct, frozen=True):
    """What one view holds.

    Attributes:
        rows: rows whose times can be right.
        bad: rows whose times cannot: no number, an end before the start, or beyond `LATEST`. The view leaves
            them out.
        first: the earliest start in ns; 0 if there is none.
        last: the latest end.
        pairs: each process with each device that it used; None where the rows do not say.
    """

    rows: int = 0
    bad: int = 0
    first: int = 0
    last: int = 0
    pairs: list[tuple[int | None, int | None]] = []


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What a look over the whole trace found.

    Attributes:
        extents: by view.
        silent: processes that launched kernels of which none was recorded, with the number of those calls.
        graph_launches: calls that launch a CUDA graph.
        graph_nodes: whether kernels say that they are nodes of a graph; not looked for where none was launched.
        dangling: kernels whose launching call is not in the trace.
        dangling_exact: False if there may be more.
        nameless: distinct names of kernels that ``StringIds`` does not have.
        no_process: whether no kernel says which process it is of.
        untimed_graphs: launches of graphs whose times could not be collected.
    """

    extents: dict[str, Extent] = {}
    silent: dict[int, int] = {}
    graph_launches: int = 0
    graph_nodes: bool = False
    dangling: int = 0
    dangling_exact: bool = True
    nameless: int = 0
    no_process: bool = False
    untimed_graphs: int = 0

    def rows(self, *views: str) -> int:
        """Rows in these views together."""
        return sum(self.extents[view].rows for view in views if view in self.extents)

    @property
    def window(self) -> tuple[int, int]:
        """First start and last end of anything on a GPU or in an API call, ns; (0, 0) if there is nothing."""
        found = [self.extents[view] for view in _WINDOW if view in self.extents and self.extents[view].rows]
        return (min(extent.first for extent in found), max(extent.last for extent in found)) if found else (0, 0)

    @property
    def used(self) -> list[tuple[int | None, int]]:
        """Each process with each device that it used, in the order of the numbers.

        Synchronisations count only where a process left nothing else: their rows may name another device.
        """
        *work, syncs = (self._used(view) for view in (*(view for view in ON_GPU if view != "syncs"), "syncs"))
        pairs = set().union(*work)
        seen = {process for process, _ in pairs}
        pairs |= {(process, device) for process, device in syncs if process not in seen}
        return sorted(pairs, key=lambda pair: (pair[1], pair[0] or 0))

    def _used(self, view: str) -> set[tuple[int | None, int]]:
        return {(p, d) for p, d in self.extents.get(view, Extent()).pairs if d is not None}

    @property
    def on_gpu(self) -> list[int]:
        """The processes that did something on a GPU."""
        return _processes(self, ON_GPU)

    @property
    def calling(self) -> list[int]:
        """The processes that called the CUDA API."""
        return _processes(self, ("calls",))

    @property
    def processes(self) -> list[int]:
        """The processes that did anything with CUDA; if none did, those with annotations or calls of the system."""
        return _processes(self, _WINDOW) or _processes(self, ("annotations", "os_calls"))

    def repairs(self) -> dict[str, Repair]:
        """What the views must do so that figures over them are right."""
        only = {
            view: _SOUND_OR_OPEN if view == "annotations" else _SOUND
            for view, extent in self.extents.items()
            if extent.bad
        }
        owner = self.calling[0] if self.no_process and len(self.calling) == 1 else None
        filled = ON_GPU if owner is not None else ()
        return {view: Repair(only.get(view, ""), owner if view in filled else None) for view in {*only, *filled}}


def look(connection: sqlite3.Connection, tables: Mapping[str, str | None]) -> Survey:
    """Surveys the views of `connection`, as they are before repairs.

    Some 0.5 s of CPU per million rows; `proctor.trace.reading.opening` keeps the result for a large file.

    Raises:
        sqlite3.DatabaseError: the file is damaged.
    """
    extents = {view: _extent(connection, view) for view in TIMED if tables[view] is not None}
    bare = Survey(extents=extents)
    dangling, exact = _dangling(connection, bare)
    no_process = bare.rows("kernels") > 0 and not any(p for p, _ in extents["kernels"].pairs)
    launches = _count(connection, bare, _named(connection, "c*GraphLaunch*", "hipGraphLaunch*"))
    nodes = "SELECT EXISTS (SELECT 1 FROM kernels WHERE graph_node > 0)"
    names = f"SELECT DISTINCT name FROM kernels WHERE {_SOUND}"
    return Survey(
        extents=extents,
        silent={} if no_process else _silent(connection, bare),
        graph_launches=launches,
        graph_nodes=(launches > 0 or tables["graphs"] is not None) and _one(connection, nodes) == 1,
        dangling=0 if no_process else dangling,
        dangling_exact=exact,
        nameless=_one(connection, f"SELECT count(*) FROM ({names}) WHERE name NOT IN (SELECT id FROM strings)"),
        no_process=no_process,
        untimed_graphs=_one(connection, 'SELECT count(*) FROM graphs WHERE start IS NULL AND "end" IS NULL'),
    )


def _extent(connection: sqlite3.Connection, view: str) -> Extent:
    sound = _SOUND_OR_OPEN if view == "annotations" else _SOUND
    # Unclosed ranges have no end: their start counts.
    last = 'max(ifnull("end", start))' if view == "annotations" else 'max("end")'
    rows, bad, first, end = connection.execute(
        f"SELECT count(*), count(CASE WHEN {sound} THEN NULL ELSE 1 END), min(start), {last} FROM {view}"
    ).fetchone()
    sound_rows = rows - bad
    if bad:
        first, end = connection.execute(f"SELECT min(start), {last} FROM {view} WHERE {sound}").fetchone()
    if view == "graphs":  # a launch whose times are unknown is no mistake: see `Survey.untimed_graphs`
        bad -= _one(connection, 'SELECT count(*) FROM graphs WHERE start IS NULL AND "end" IS NULL')
    device = "device" if view in ON_GPU else "NULL"
    pairs = connection.execute(f"SELECT DISTINCT process, {device} FROM {view} LIMIT 10000")
    return Extent(
        rows=sound_rows, bad=bad, first=first or 0, last=end or 0,
        pairs=sorted({(_integer(p), _integer(d)) for p, d in pairs}, key=lambda pair: (pair[0] or 0, pair[1] or 0)),
    )  # fmt: skip


def _dangling(connection: sqlite3.Connection, survey: Survey) -> tuple[int, bool]:
    calls, kernels = survey.rows("calls"), survey.rows("kernels")
    if not calls or not kernels:
        return 0, True
    if calls + kernels <= _EXACT_ROWS:
        known = "SELECT correlation, process FROM calls WHERE correlation IS NOT NULL AND process IS NOT NULL"
        sql = f"SELECT count(*) FROM kernels WHERE (correlation, process) NOT IN ({known}) AND {_SOUND}"
        return _one(connection, sql), True
    found = 0
    for process in survey.calling[:_MOST_PROCESSES]:
        first = _one(connection, "SELECT min(start) FROM calls WHERE process = ?", (process,))
        found += _one(connection, "SELECT count(*) FROM kernels WHERE process = ? AND start < ?", (process, first))
    return found, False


def _silent(connection: sqlite3.Connection, survey: Survey) -> dict[int, int]:
    """Launching calls by process, for processes of which nothing on a GPU was recorded."""
    quiet = [process for process in survey.calling if process not in set(survey.on_gpu)]
    if not quiet:
        return {}
    ids = _named(connection, "cuda*Launch*", "cu*Launch*", "hip*Launch*")
    counts = {process: _count(connection, survey, ids, process) for process in quiet[:_MOST_PROCESSES]}
    return {process: count for process, count in counts.items() if count}


def _named(connection: sqlite3.Connection, *patterns: str) -> list[int]:
    where = " OR ".join("text GLOB ?" for _ in patterns)
    rows = connection.execute(f"SELECT id FROM strings WHERE length(text) < 200 AND ({where}) LIMIT 10000", patterns)
    return [number for (number,) in rows if isinstance(number, int)]


def _count(connection: sqlite3.Connection, survey: Survey, ids: Sequence[int], process: int | None = None) -> int:
    """Calls with one of these names, of one process or of all."""
    if not ids or not survey.rows("calls"):
        return 0
    mine = "" if process is None else f" AND process = {process}"
    return _one(connection, f"SELECT count(*) FROM calls WHERE name IN ({', '.join(map(str, ids))}){mine}")


def _one(connection: sqlite3.Connection, sql: str, parameters: Sequence[object] = ()) -> int:
    return int(connection.execute(sql, parameters).fetchone()[0] or 0)


def _processes(survey: Survey, views: Iterable[str]) -> list[int]:
    return sorted(
        {process for view in views if view in survey.extents for process, _ in survey.extents[view].pairs if process}
    )


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) else None
