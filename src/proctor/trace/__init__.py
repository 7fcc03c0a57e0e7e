"""GPU traces: where time went, what changed between two, and how one knows. Read-only, offline, alone on its floor.

The functions load on first use; those that share their name with a package are that package, which can be called.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from proctor._lazy import lazy
from proctor.trace.reading.opening import open_trace
from proctor.trace.trace import Trace

if TYPE_CHECKING:
    from proctor.trace.diff.diffing import diff
    from proctor.trace.export import export
    from proctor.trace.launches.kernel_occupancy import occupancy_of_trace
    from proctor.trace.launches.stakeout import stake_out, watch
    from proctor.trace.names import decode, line_up, risks_of, short_name
    from proctor.trace.names.listing import kinds_of, risks_in
    from proctor.trace.nvtx.projection import project
    from proctor.trace.nvtx.ranks import by_rank
    from proctor.trace.overlap.overlap import overlap
    from proctor.trace.sql import asked
    from proctor.trace.summary.summary import summary
    from proctor.trace.timeline.timeline import origin, timeline
    from proctor.trace.work.census import census
    from proctor.trace.work.gaps import gaps
    from proctor.trace.work.scope import By, Scope

_HOMES = {
    "By": "work.scope",
    "Scope": "work.scope",
    "asked": "sql",
    "by_rank": "nvtx.ranks",
    "census": "work.census",
    "decode": "names",
    "gaps": "work.gaps",
    "kinds_of": "names.listing",
    "line_up": "names",
    "occupancy_of_trace": "launches.kernel_occupancy",
    "origin": "timeline.timeline",
    "project": "nvtx.projection",
    "risks_in": "names.listing",
    "risks_of": "names",
    "short_name": "names",
    "stake_out": "launches.stakeout",
    "watch": "launches.stakeout",
}
_CALLED = ("diff", "export", "overlap", "summary", "timeline")
"""Packages that are called like their function; see `proctor.trace.calling`."""

__all__ = [
    "By",
    "Scope",
    "Trace",
    "asked",
    "by_rank",
    "census",
    "decode",
    "diff",
    "export",
    "gaps",
    "kinds_of",
    "line_up",
    "occupancy_of_trace",
    "open_trace",
    "origin",
    "overlap",
    "project",
    "risks_in",
    "risks_of",
    "short_name",
    "stake_out",
    "summary",
    "timeline",
    "watch",
]

_load, __dir__ = lazy(__name__, _HOMES)


def __getattr__(name: str) -> object:
    return import_module(f"{__name__}.{name}") if name in _CALLED else _load(name)
