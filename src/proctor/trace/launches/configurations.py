"""Groups the launches of a kernel by configuration: what they ask of a GPU, and what comes of it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from proctor.trace.launches.gpu_limits import GpuLimits
from proctor.trace.launches.launches import NONE, Kind, Launches
from proctor.trace.launches.occupancy import Limits, Occupancy, occupancy
from proctor.trace.launches.spread import Spread, drift_of, outliers_of, spread_of
from proctor.trace.launches.stakeout_model import Configuration, Counted, Place, Three
from proctor.trace.launches.waves import Waves, waves
from proctor.trace.model import pid_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Selected = NDArray[np.int64]

MOST_PLACES, MOST_RANGES = 16, 8


class Group(NamedTuple):
    """Launches of one configuration: indices into `Launches`, in order of time.

    `kinds` are theirs with their indices; they differ in no more than where and when they ran.
    """

    kinds: tuple[tuple[int, Kind], ...]
    limits: Limits | None
    at: Selected

    @property
    def kind(self) -> Kind:
        """What all of them ask for."""
        return self.kinds[0][1]

    @property
    def shared_executed(self) -> tuple[int, int] | None:
        """Least and most bytes of shared memory that the driver set aside; None where the trace does not say."""
        known = [kind.shared_executed for _, kind in self.kinds if kind.shared_executed is not None]
        return (min(known), max(known)) if known else None


def grouped(launches: Launches, limits: GpuLimits) -> list[Group]:
    """The launches by configuration and make of GPU, those with the most time first."""
    import numpy as np

    known: dict[tuple[Kind, Limits | None], list[int]] = {}
    for number, kind in enumerate(launches.kinds):
        same = kind._replace(process=None, device=None, context=None, stream=None, shared_executed=None)
        known.setdefault((same, limits.of(kind.device, kind.process)), []).append(number)
    group_of = np.empty(len(launches.kinds), np.int32)
    for group, numbers in enumerate(known.values()):
        group_of[numbers] = group
    groups = group_of[launches.kind]
    order = np.argsort(groups, kind="stable")
    ends = np.cumsum(np.bincount(groups, minlength=len(known)))
    selected = np.split(order, ends[:-1])
    made = [
        Group(tuple((number, launches.kinds[number]) for number in numbers), of_gpu, at)
        for ((_, of_gpu), numbers), at in zip(known.items(), selected, strict=True)
    ]
    return sorted(made, key=lambda group: -int(launches.duration[group.at].sum()))


def configuration(
    number: int,
    group: Group,
    launches: Launches,
    *,
    gpu: int | None,
    names: dict[int, str],
    ranges: dict[int, str] | None,
) -> Configuration:
    """What there is to say of a group.

    Args:
        number: its place, from 1.
        group: of launches.
        launches: all of them.
        gpu: where its limits are in the list of GPUs.
        names: of the API functions, by id.
        ranges: the paths of NVTX ranges by `Launches.path`; None where they were not looked up.
    """
    at = group.at
    places, more = _places(group, launches)
    called = at[launches.call[at] != NONE]
    later = called[launches.start[called] >= launches.returned[called]]
    return Configuration(
        number=number,
        launches=len(at),
        gpu=gpu,
        **_asked(group),
        times=spread_of(launches.duration[at]),
        outliers=outliers_of(launches.duration[at]),
        drift=drift_of(launches.start[at], launches.duration[at]),
        latency=_spread(launches.start[called] - launches.called[called]),
        queued=_spread(launches.start[later] - launches.returned[later]),
        without_call=len(at) - len(called),
        calls=_calls(launches, called, names),
        places=places,
        more_places=more,
        ranges=None if ranges is None else _ranges(launches, at, ranges),
    )


def _asked(group: Group) -> dict[str, Any]:
    """The fields of a `Configuration` that say what was launched, and how much of a GPU it fills."""
    kind = group.kind
    held, executed, count = _held(group)
    return {
        "kernel": kind.name,
        "grid": grid_of(kind),
        "block": (kind.block_x, kind.block_y, kind.block_z),
        "cluster": (kind.cluster_x, kind.cluster_y, kind.cluster_z),
        "registers": kind.registers,
        "static_shared": kind.static_shared,
        "dynamic_shared": kind.dynamic_shared,
        "local_per_thread": kind.local_per_thread,
        "shared_executed": group.shared_executed,
        "max_active_clusters": kind.max_active_clusters,
        "launch_type": kind.launch_type,
        "in_graph": bool(kind.in_graph),
        "in_green_context": bool(kind.in_green_context),
        "occupancy": held,
        "occupancy_executed": executed,
        "waves": count,
        "reported_occupancy": kind.reported_occupancy,
    }


def grid_of(kind: Kind) -> Three:
    """X, Y, Z of the grid."""
    return kind.grid_x, kind.grid_y, kind.grid_z


def product_of(sizes: Three) -> int | None:
    """X * Y * Z; None where the trace does not say one of them."""
    x, y, z = sizes
    return None if x is None or y is None or z is None else x * y * z


def shared_of(kind: Kind) -> int | None:
    """Bytes of shared memory of a block, static plus dynamic; None where the trace does not say one of them."""
    if kind.static_shared is None or kind.dynamic_shared is None:
        return None
    return kind.static_shared + kind.dynamic_shared


def held_by(kind: Kind, limits: Limits | None) -> tuple[Occupancy | None, Waves | None]:
    """Occupancy and waves of a launch; None where the trace does not say enough of the launch or the GPU."""
    threads = product_of((kind.block_x, kind.block_y, kind.block_z))
    if limits is None or threads is None:
        return None, None
    held = occupancy(limits, threads=threads, registers=kind.registers, shared=shared_of(kind))
    blocks = product_of(grid_of(kind))
    if blocks is None or kind.in_green_context or held.unknown:
        return held, None
    cluster = product_of((kind.cluster_x, kind.cluster_y, kind.cluster_z)) or 1
    most = kind.max_active_clusters
    return held, waves(limits, held, blocks=blocks, cluster=cluster, max_active_clusters=most)


def _held(group: Group) -> tuple[Occupancy | None, Occupancy | None, Waves | None]:
    """By the most an SM has, by what the driver set aside (where that is less), and waves."""
    kind, limits, set_aside = group.kind, group.limits, group.shared_executed
    held, count = held_by(kind, limits)
    if held is None or limits is None or not set_aside or not 0 < set_aside[0] < limits.shared:
        return held, None, count
    executed, _ = held_by(kind, msgspec.structs.replace(limits, shared=set_aside[0]))
    fewer = executed is not None and 0 < executed.blocks < held.blocks
    return held, executed if fewer else None, count


def _spread(times: Selected) -> Spread | None:
    return spread_of(times) if len(times) else None


def _calls(launches: Launches, called: Selected, names: dict[int, str]) -> tuple[Counted, ...]:
    import numpy as np

    counts: Counter[str] = Counter()
    for number, count in zip(*np.unique(launches.call[called], return_counts=True), strict=True):
        name = launches.calls[number][0]
        counts["[no name]" if name is None else names[name]] += int(count)
    return tuple(Counted(name, count) for name, count in counts.most_common())


def _places(group: Group, launches: Launches) -> tuple[tuple[Place, ...], int]:
    import numpy as np

    together: dict[tuple[int | None, ...], list[int]] = {}
    for number, kind in group.kinds:
        together.setdefault((kind.process, kind.device, kind.context, kind.stream), []).append(number)
    made = []
    of_kind = launches.kind[group.at]
    for (process, device, context, stream), kinds in together.items():
        times = launches.duration[group.at[np.isin(of_kind, kinds)]]
        made.append(
            Place(
                process=process,
                pid=None if process is None else pid_of(process),
                device=device,
                context=context,
                stream=stream,
                launches=len(times),
                total=int(times.sum()),
                median=float(np.median(times)),
            )
        )
    made.sort(key=lambda place: -place.launches)
    return tuple(made[:MOST_PLACES]), max(0, len(made) - MOST_PLACES)


def _ranges(launches: Launches, at: Selected, ranges: dict[int, str]) -> tuple[Counted, ...]:
    import numpy as np

    numbers, counts = np.unique(launches.path[at], return_counts=True)
    found = [
        Counted(ranges[int(number)], int(count))
        for number, count in zip(numbers, counts, strict=True)
        if number != NONE
    ]
    return tuple(sorted(found, key=lambda each: -each.launches)[:MOST_RANGES])
