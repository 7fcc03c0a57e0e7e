"""Watches one kernel: every launch, what launches have in common, and those that stand out.

Launches are grouped by configuration first: times of different grids are not comparable, so spread, outliers and drift
are those of equal launches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from proctor.trace.launches.configurations import Group, configuration, grouped
from proctor.trace.launches.gpu_limits import GpuLimits
from proctor.trace.launches.kernel_choice import Kernel, choose
from proctor.trace.launches.launch_ranges import find_ranges
from proctor.trace.launches.launches import NONE, Launches
from proctor.trace.launches.occupancy import Limits
from proctor.trace.launches.spread import outliers_of
from proctor.trace.launches.stakeout_model import Configuration, Launch, StakeOut
from proctor.trace.launches.stakeout_remarks import remarks_of
from proctor.trace.model import pid_of
from proctor.trace.timeline.timeline import origin
from proctor.trace.trace import Trace

_MOST_SLOW = 20
_MOST_CONFIGURATIONS = 256


class Watch:
    """The launches of some kernels of an open trace; made by `watch`.

    Attributes:
        found: what they have in common, and those that stand out.
    """

    def __init__(self, trace: Trace, kernels: Sequence[Kernel], *, gpu: str | None = None, nvtx: bool = True) -> None:
        """Reads the launches; see `watch`."""
        import numpy as np

        self._origin = origin(trace)
        self._launches = launches = Launches(trace, [kernel.id for kernel in kernels])
        self._ranges = find_ranges(trace, launches) if nvtx else None
        self._names = trace.text(name for name, _ in launches.calls if name is not None)
        limits = GpuLimits(trace, gpu)
        groups = grouped(launches, limits)
        self._medians = np.array([float(np.median(launches.duration[group.at])) for group in groups])
        self._number = np.empty(len(launches.kinds), np.int32)
        for number, group in enumerate(groups):
            self._number[[kind for kind, _ in group.kinds]] = number
        self.found = self._summed_up(trace, kernels, groups, limits)

    def launches(self) -> Iterator[Launch]:
        """Every launch in order of time, one at a time."""
        yield from self._told(range(len(self._launches)))

    def _summed_up(
        self, trace: Trace, kernels: Sequence[Kernel], groups: Sequence[Group], limits: GpuLimits
    ) -> StakeOut:
        launches = self._launches
        gpus = list(dict.fromkeys(group.limits for group in groups if group.limits is not None))
        described = [
            self._described(number, group, gpus) for number, group in enumerate(groups[:_MOST_CONFIGURATIONS], 1)
        ]
        total = int(launches.duration.sum())
        everything = trace.one('SELECT SUM("end" - start) FROM kernels') or 0
        missing = int((launches.call == NONE).sum())
        return StakeOut(
            kernels=tuple(kernels),
            launches=len(launches),
            total=total,
            share=total / everything if everything else 0.0,
            origin=self._origin,
            first=int(launches.start[0]),
            last=int((launches.start + launches.duration).max()),
            configurations=tuple(described),
            more_configurations=len(groups) - len(described),
            gpus=tuple(gpus),
            slowest=tuple(self._slowest(groups)),
            without_call=missing,
            remarks=tuple(remarks_of(trace, described, gpus, missing, limits)),
        )

    def _described(self, number: int, group: Group, gpus: Sequence[Limits]) -> Configuration:
        gpu = None if group.limits is None else gpus.index(group.limits)
        return configuration(number, group, self._launches, gpu=gpu, names=self._names, ranges=self._ranges)

    def _slowest(self, groups: Sequence[Group]) -> Iterator[Launch]:
        """Of the outliers, those that lost the most time."""
        import numpy as np

        lost, where = [], []
        for median, group in zip(self._medians, groups, strict=True):
            times = self._launches.duration[group.at]
            if (beyond := outliers_of(times)) is not None and beyond.slow:
                slow = np.flatnonzero(times > beyond.above)
                slow = slow[np.argsort(-times[slow], kind="stable")[:_MOST_SLOW]]
                lost.append(times[slow] - median)
                where.append(group.at[slow])
        if where:
            worst = np.argsort(-np.concatenate(lost), kind="stable")[:_MOST_SLOW]
            yield from self._told(np.concatenate(where)[worst].tolist())

    def _told(self, indices: Iterable[int]) -> Iterator[Launch]:
        launches = self._launches
        for at in indices:
            kind = launches.kinds[launches.kind[at]]
            number = int(self._number[launches.kind[at]])
            start, correlation = int(launches.start[at]), int(launches.correlation[at])
            call, thread, called, queued = self._call_of(at)
            yield Launch(
                at=start - self._origin,
                start=start,
                duration=int(launches.duration[at]),
                configuration=number + 1,
                kernel=kind.name,
                of_median=float(launches.duration[at] / self._medians[number]) if self._medians[number] else 1.0,
                device=kind.device,
                context=kind.context,
                stream=kind.stream,
                process=kind.process,
                pid=None if kind.process is None else pid_of(kind.process),
                correlation=None if correlation == NONE else correlation,
                call=call,
                called=called,
                latency=None if called is None else start - called,
                queued=queued,
                thread=thread,
                range=None if self._ranges is None else self._ranges.get(int(launches.path[at])),
            )

    def _call_of(self, at: int) -> tuple[str | None, int | None, int | None, int | None]:
        """Name, thread and start of the call, and how long the launch waited after it returned."""
        launches = self._launches
        if launches.call[at] == NONE:
            return None, None, None, None
        name, thread = launches.calls[launches.call[at]]
        waited = int(launches.start[at] - launches.returned[at])
        called = int(launches.called[at])
        return "[no name]" if name is None else self._names[name], thread, called, waited if waited >= 0 else None


def watch(trace: Trace, pattern: str, *, all_: bool = False, gpu: str | None = None, nvtx: bool = True) -> Watch:
    """Watches the kernel that `pattern` means; see `launches.kernel_choice.choose` for how.

    Args:
        trace: an open trace.
        pattern: ``#123``, the whole name, a part of it, or a regular expression.
        all_: take all kernels that fit, together.
        gpu: name of the GPU, where the trace does not say it.
        nvtx: look up the ranges around each launch; costs a walk over all ranges.

    Raises:
        AmbiguousKernelError: several kernels fit, and `all_` is not set.
        UserError: no kernel fits; the trace has none; `gpu` is not known.
    """
    return Watch(trace, choose(trace, pattern, all_=all_), gpu=gpu, nvtx=nvtx)


def stake_out(trace: Trace, pattern: str, *, all_: bool = False, gpu: str | None = None, nvtx: bool = True) -> StakeOut:
    """What `watch` finds, without the single launches."""
    return watch(trace, pattern, all_=all_, gpu=gpu, nvtx=nvtx).found
