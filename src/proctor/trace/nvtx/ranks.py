"""The same range on several ranks side by side: who is slow, who is fast, and by how much."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from proctor.trace.model import pid_of
from proctor.trace.nvtx.projection import By, RangeFigures, project

if TYPE_CHECKING:
    from proctor.trace.trace import Trace


class Rank(msgspec.Struct, frozen=True):
    """One process of the trace that opened ranges.

    Attributes:
        process: ``globalPid``.
        pid: the operating system's process id.
        devices: numbers of the GPUs it ran kernels on.
    """

    process: int
    pid: int
    devices: tuple[int, ...]


class AcrossRanks(msgspec.Struct, frozen=True, kw_only=True):
    """One range on every rank.

    Attributes:
        name: the range's name or path.
        domain: its NVTX domain or category.
        measure: which time the ranks are compared by: ``gpu_busy_ns``, or ``cpu_ns`` where no rank did GPU work in it.
        ranks: its figures on each rank, in the order of `Ranks.ranks`; None where a rank does not have it.
        slowest: pid of the rank with most time; None where fewer than two ranks have the range.
        fastest: pid of the rank with least time.
        skew_ns: time of the slowest less time of the fastest.
        skew: the same, divided by the time of the slowest: 0 where all are alike.
        even_counts: whether every rank that has it opened it equally often; times compare poorly otherwise.
    """

    name: str
    domain: str
    measure: str
    ranks: tuple[RangeFigures | None, ...]
    slowest: int | None
    fastest: int | None
    skew_ns: int
    skew: float
    even_counts: bool


class Ranks(msgspec.Struct, frozen=True):
    """Ranges side by side, the largest skew first.

    A trace does not number ranks: they are its processes, in the order of their GPUs, then of their process ids.
    """

    ranks: tuple[Rank, ...]
    ranges: tuple[AcrossRanks, ...]


def by_rank(trace: Trace, *, by: By = "name") -> Ranks:
    """Compares each range over the processes of a trace.

    Raises:
        UserError: the trace has no ranges, or is damaged.
    """
    rows: dict[tuple[str, str], dict[int, RangeFigures]] = defaultdict(dict)
    for figures in project(trace, by=by).ranges:
        rows[figures.name, figures.domain][figures.process] = figures
    ranks = _ranks(trace, {process for found in rows.values() for process in found})
    compared = [_compare(name, domain, found, ranks) for (name, domain), found in rows.items()]
    return Ranks(ranks, tuple(sorted(compared, key=lambda each: -each.skew_ns)))


def _ranks(trace: Trace, processes: set[int]) -> tuple[Rank, ...]:
    devices: dict[int, set[int]] = defaultdict(set)
    for process, device in trace.rows("SELECT DISTINCT process, device FROM kernels WHERE device IS NOT NULL"):
        devices[process].add(device)
    ranks = [Rank(process, pid_of(process or 0), tuple(sorted(devices[process]))) for process in processes]
    return tuple(sorted(ranks, key=lambda rank: (rank.devices or (1 << 31,), rank.pid)))


def _compare(name: str, domain: str, found: dict[int, RangeFigures], ranks: tuple[Rank, ...]) -> AcrossRanks:
    measure = "gpu_busy_ns" if any(figures.operations for figures in found.values()) else "cpu_ns"
    times = sorted((getattr(figures, measure), figures.pid) for figures in found.values())
    least, most = times[0], times[-1]
    several = len(found) > 1
    return AcrossRanks(
        name=name,
        domain=domain,
        measure=measure,
        ranks=tuple(found.get(rank.process) for rank in ranks),
        slowest=most[1] if several else None,
        fastest=least[1] if several else None,
        skew_ns=most[0] - least[0],
        skew=(most[0] - least[0]) / most[0] if most[0] else 0.0,
        even_counts=len({figures.count for figures in found.values()}) == 1,
    )
