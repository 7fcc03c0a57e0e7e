"""Which range of NVTX (or of the PyTorch profiler) encloses each launch.

A launch lies in the ranges that are open on its thread when the API call begins. Ranges and calls are read in order of
time and walked side by side with one stack a thread, so memory grows with the depth of nesting, the distinct names and
the launches, never with the number of ranges.

Ranges may overlap without nesting (start/end ranges, several domains): the one opened last is the innermost. A range
of no length encloses nothing; one that never ends is open to the end of the trace. A start/end range that ends on
another thread belongs to its whole process.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from proctor.trace.nvtx.paths import OUTSIDE, Paths
from proctor.trace.nvtx.walk import Tally, Walk

if TYPE_CHECKING:
    from proctor.trace.trace import Trace

RANGE_OF_LAUNCH = "range_of_launch"
"""Temporary table (process, correlation, path) that `innermost` fills; see `Enclosed`."""


class Enclosed(NamedTuple):
    """The ranges around the launches of a trace.

    The temporary table ``range_of_launch (process, correlation, path)`` has a row for each API call with a correlation
    id; ``path`` is an id into `paths`, 0 for calls outside of all ranges. Join it to what ran on a GPU::

        SELECT r.path, count(*), sum(k."end" - k.start)
        FROM kernels k LEFT JOIN range_of_launch r ON r.process = k.process AND r.correlation = k.correlation
        GROUP BY r.path

    A NULL path then means that the trace does not have the launching call.

    Attributes:
        paths: the distinct paths, by id: ``paths.text(id)``, ``paths.names(id)``.
        tallies: for each (process, path) how often a range with that path was opened, and what was called in it.
    """

    paths: Paths
    tallies: dict[tuple[int, int], Tally]


_KNOWN: weakref.WeakKeyDictionary[Trace, Enclosed] = weakref.WeakKeyDictionary()


def innermost(trace: Trace) -> Enclosed:
    """Finds the range around each launch, once per open trace; names are without PyTorch's per-call numbers.

    Returns:
        Empty paths and a table of calls outside of all ranges where the trace has no annotations.

    Raises:
        UserError: the file is damaged where it was read.
    """
    if trace in _KNOWN:
        return _KNOWN[trace]
    walk = Walk(trace)
    trace.run(f"DROP TABLE IF EXISTS temp.{RANGE_OF_LAUNCH}")
    trace.run(
        f"CREATE TEMP TABLE {RANGE_OF_LAUNCH} (process INTEGER, correlation INTEGER, path INTEGER, "
        "PRIMARY KEY (process, correlation)) WITHOUT ROWID"
    )
    if not trace.has("annotations"):
        trace.run(
            f"INSERT OR IGNORE INTO {RANGE_OF_LAUNCH} "
            f"SELECT process, correlation, {OUTSIDE} FROM calls WHERE correlation > 0"
        )
        return _KNOWN.setdefault(trace, Enclosed(walk.paths, walk.tallies))
    launches = ((call.process, call.correlation, call.path) for call in walk.calls() if call.correlation)
    # A correlation id that comes twice in a process keeps its first call: the outer one of two nested calls.
    trace.connection.executemany(f"INSERT OR IGNORE INTO {RANGE_OF_LAUNCH} VALUES (?, ?, ?)", launches)
    found = _KNOWN[trace] = Enclosed(walk.paths, walk.tallies)
    return found


def range_paths(trace: Trace) -> Iterator[tuple[int, str]]:
    """Each kernel of the trace that a range encloses: (``kernels.id``, path in words), in the order of the file."""
    found = innermost(trace)
    sql = (
        f"SELECT k.id, r.path FROM kernels k JOIN {RANGE_OF_LAUNCH} r "
        "ON r.process = k.process AND r.correlation = k.correlation WHERE r.path <> ?"
    )
    for kernel, path in trace.rows(sql, (OUTSIDE,)):
        yield kernel, found.paths.text(path)
