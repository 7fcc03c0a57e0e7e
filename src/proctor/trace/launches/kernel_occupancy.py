"""Occupancy of every kernel of a trace, weighted by time: which kernels are held back, and by what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from proctor.trace.launches.configurations import held_by
from proctor.trace.launches.gpu_limits import GpuLimits
from proctor.trace.launches.launches import Kind, columns_of_kind, kind_of
from proctor.trace.launches.occupancy import Limits, Occupancy
from proctor.trace.launches.stakeout_remarks import BIG_SHARED, gpu_remarks
from proctor.trace.launches.waves import Waves
from proctor.trace.trace import Trace

_NOT_NEEDED = ("context", "stream", "shared_executed", "local_per_thread", "launch_type", "in_graph")


class HeldBack(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel and what its launches leave unused. Averages are weighted by the time of the launches.

    Attributes:
        kernel: id of its name in this trace.
        name: whole.
        launches: of it.
        total: ns, added up.
        share: of the time of all kernels, 0 to 1.
        configurations: ways in which it was launched: grid, block, registers, shared memory, GPU.
        known: ns of launches whose occupancy is known.
        occupancy: theoretical, 0 to 1; None where none is known.
        limiters: ns by what bound: each limiter of a launch counts in full, so these may add up to more than `known`.
        waves: of the configuration with the most time; None where not known.
        efficiency: of the places over all waves, those in use, 0 to 1; None where no waves are known.
        filled: occupancy that the grids can reach, 0 to 1; see `Waves`; None where no waves are known.
        reported_occupancy: the profiler's own estimate of `filled`, percent; None: it gives none.
        reported_zero: launches for which the profiler says 0 % and that have 64 KiB of shared memory or more.
    """

    kernel: int | None
    name: str
    launches: int
    total: int
    share: float
    configurations: int
    known: int
    occupancy: float | None
    limiters: dict[str, int]
    waves: Waves | None
    efficiency: float | None
    filled: float | None
    reported_occupancy: float | None
    reported_zero: int


class OccupancyOfTrace(msgspec.Struct, frozen=True, kw_only=True):
    """All kernels, the one with the most time first.

    Attributes:
        kernels: each with its figures.
        total: ns of all launches.
        known: ns of those whose occupancy is known.
        occupancy: weighted by time, over `known`; None where none is known.
        limiters: ns by what bound, as in `HeldBack`.
        gpus: limits of the GPUs.
        remarks: what a reader must know before trusting the figures.
    """

    kernels: tuple[HeldBack, ...]
    total: int
    known: int
    occupancy: float | None
    limiters: dict[str, int]
    gpus: tuple[Limits, ...]
    remarks: tuple[str, ...]


class _Config:
    """Launches of one `Kind`."""

    __slots__ = ("held", "kind", "launches", "total", "waves")

    def __init__(self, kind: Kind, held: Occupancy | None, count: Waves | None, launches: int, total: int) -> None:
        self.kind, self.held, self.waves, self.launches, self.total = kind, held, count, launches, total


def occupancy_of_trace(trace: Trace, *, gpu: str | None = None) -> OccupancyOfTrace:
    """Theoretical occupancy of every kernel.

    Args:
        trace: an open trace.
        gpu: name of the GPU, where the trace does not say it.

    Raises:
        UserError: the trace has no kernels; `gpu` is not known.
    """
    if not trace.has("kernels"):
        raise trace.missing("kernels", "occupancy")
    limits = GpuLimits(trace, gpu)
    kernels: dict[int | None, list[_Config]] = {}
    for kind, launches, total in _kinds(trace):
        held, count = held_by(kind, limits.of(kind.device, kind.process))
        kernels.setdefault(kind.name, []).append(_Config(kind, held, count, launches, total))
    everything = [config for configs in kernels.values() for config in configs]
    total = sum(config.total for config in everything)
    names = trace.text(name for name in kernels if name is not None)
    rows = [
        _held_back(name, "[no name]" if name is None else names[name], configs, total)
        for name, configs in kernels.items()
    ]
    known = [config for config in everything if config.held is not None]
    gpus = tuple(dict.fromkeys(found for config in everything if (found := limits.of(*_where(config))) is not None))
    return OccupancyOfTrace(
        kernels=tuple(sorted(rows, key=lambda row: (-row.total, row.name))),
        total=total,
        known=sum(config.total for config in known),
        occupancy=_mean([(config.held.share, config.total) for config in known if config.held]),
        limiters=_limiters(known),
        gpus=gpus,
        remarks=tuple(_remarks(rows, everything, gpus, limits)),
    )


def _kinds(trace: Trace) -> Iterator[tuple[Kind, int, int]]:
    """Every way in which a kernel was launched: (what was asked for, launches, ns)."""
    found: dict[tuple[Any, ...], list[int]] = {}
    columns = columns_of_kind(_NOT_NEEDED)
    for row in trace.rows(f'SELECT "end" - start, {columns} FROM kernels'):
        if (counted := found.get(row[1:])) is None:
            counted = found[row[1:]] = [0, 0]
        counted[0] += 1
        counted[1] += row[0]
    for key, (launches, total) in found.items():
        yield kind_of(key), launches, total


def _held_back(kernel: int | None, name: str, configs: Sequence[_Config], everything: int) -> HeldBack:
    total = sum(config.total for config in configs)
    known = [config for config in configs if config.held is not None]
    dearest = max(configs, key=lambda config: config.total)
    reported = [(c.kind.reported_occupancy, c.total) for c in configs if c.kind.reported_occupancy is not None]
    return HeldBack(
        kernel=kernel,
        name=name,
        launches=sum(config.launches for config in configs),
        total=total,
        share=total / everything if everything else 0.0,
        configurations=len({config.kind._replace(process=None, device=None) for config in configs}),
        known=sum(config.total for config in known),
        occupancy=_mean([(config.held.share, config.total) for config in known if config.held]),
        limiters=_limiters(known),
        waves=dearest.waves,
        efficiency=_mean([(config.waves.efficiency, config.total) for config in configs if config.waves]),
        filled=_mean([(config.waves.filled, config.total) for config in configs if config.waves]),
        reported_occupancy=_mean(reported),
        reported_zero=sum(config.launches for config in configs if _wrongly_zero(config)),
    )


def _wrongly_zero(config: _Config) -> bool:
    shared = (config.kind.static_shared or 0) + (config.kind.dynamic_shared or 0)
    fits = config.held is not None and config.held.blocks > 0
    return fits and config.kind.reported_occupancy == 0 and shared >= BIG_SHARED


def _limiters(configs: Sequence[_Config]) -> dict[str, int]:
    found: dict[str, int] = {}
    for config in configs:
        for limiter in config.held.limiters if config.held else ():
            found[limiter] = found.get(limiter, 0) + config.total
    return dict(sorted(found.items(), key=lambda each: -each[1]))


def _mean(values: Sequence[tuple[float, int]]) -> float | None:
    """Mean of values weighted by time; of launches without any time, the plain mean."""
    if not values:
        return None
    weight = sum(time for _, time in values)
    return sum(value * time for value, time in values) / weight if weight else sum(v for v, _ in values) / len(values)


def _where(config: _Config) -> tuple[int | None, int | None]:
    return config.kind.device, config.kind.process


def _remarks(
    rows: Sequence[HeldBack], everything: Sequence[_Config], gpus: Sequence[Limits], user: GpuLimits
) -> Iterator[str]:
    unknown = any(user.of(*_where(config)) is None for config in everything)
    yield from gpu_remarks(gpus, unknown=unknown, user=user)
    if zeros := sum(row.reported_zero for row in rows):
        yield (
            f"the profiler reports an occupancy of 0 % for {zeros:,} launches with 64 KiB of shared memory or more: "
            "it always does for such launches; take the figures here"
        )
    if any(config.kind.in_green_context for config in everything):
        yield "launches in a green context have only some of the SMs, the trace does not say how many: no waves"
