"""What watching a kernel finds: its configurations, its outliers, its launches."""

from __future__ import annotations

import msgspec

from proctor.trace.launches.kernel_choice import Kernel
from proctor.trace.launches.occupancy import Limits, Occupancy
from proctor.trace.launches.spread import Drift, Outliers, Spread
from proctor.trace.launches.waves import Waves

Three = tuple[int | None, int | None, int | None]
"""X, Y and Z; None where the trace does not say."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where launches of a configuration ran. `process` is ``globalPid``, times are ns."""

    process: int | None
    pid: int | None
    device: int | None
    context: int | None
    stream: int | None
    launches: int
    total: int
    median: float


class Counted(msgspec.Struct, frozen=True):
    """An API function or an NVTX range, and the launches made by it or within it."""

    name: str
    launches: int


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """Launches that are equal but for where and when they ran.

    Attributes:
        number: from 1; the one with the most time first.
        kernel: id of the name.
        grid, block, cluster: X, Y, Z. A cluster of 0 is none.
        registers: of a thread.
        static_shared, dynamic_shared: bytes of a block.
        local_per_thread: bytes of local memory (spilled registers, local arrays).
        shared_executed: least and most bytes of shared memory that the driver set aside in an SM; None: not said.
        max_active_clusters: clusters that the GPU holds at once, as the driver said; 0 or None: not said.
        launch_type: 1 regular, 2 and 3 cooperative.
        in_graph: launched as a node of a CUDA graph.
        in_green_context: ran in a green context, which may have only some of the SMs: waves are then not given.
        gpu: index into `StakeOut.gpus`; None where the limits are not known.
        occupancy: what an SM can hold; None where the limits or the block are not known.
        occupancy_executed: the same with the shared memory that the driver set aside, where that allows fewer blocks.
        waves: None where occupancy or the number of SMs is not known.
        reported_occupancy: the profiler's own estimate of `waves.filled`, percent (Kineto); None: it gives none.
        times: spread of the durations.
        latency: from the call of the API to the start of the kernel, of launches whose call the trace has.
        queued: from the return of the call to the start of the kernel, of those that start later than that.
        without_call: launches whose call the trace does not have.
        calls: API functions that launched them.
        places: where, with the most launches first; at most 16. `more_places` counts the others.
        ranges: paths of NVTX ranges around the call, with the most launches first, at most 8; None: not looked up.
    """

    number: int
    kernel: int
    launches: int
    grid: Three
    block: Three
    cluster: Three
    registers: int | None
    static_shared: int | None
    dynamic_shared: int | None
    local_per_thread: int | None
    shared_executed: tuple[int, int] | None
    max_active_clusters: int | None
    launch_type: int | None
    in_graph: bool
    in_green_context: bool
    gpu: int | None
    occupancy: Occupancy | None
    occupancy_executed: Occupancy | None
    waves: Waves | None
    reported_occupancy: float | None
    times: Spread
    outliers: Outliers | None
    drift: Drift | None
    latency: Spread | None
    queued: Spread | None
    without_call: int
    calls: tuple[Counted, ...]
    places: tuple[Place, ...]
    more_places: int
    ranges: tuple[Counted, ...] | None


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One launch. Times are ns; None where the trace does not say.

    Attributes:
        at: its start, after the trace's first event.
        start: the same on the trace's own clock.
        configuration: number of its `Configuration`.
        of_median: its duration, of the median of its configuration.
        call: API function that launched it; None where the trace does not have the call.
        called: start of the call, on the trace's own clock.
        latency: from `called` to `start`.
        queued: from the return of the call to `start`; None also where the kernel started before that.
        thread: ``globalTid`` of the caller.
        range: path of NVTX ranges around the call; None where it lies in none, or was not looked up.
    """

    at: int
    start: int
    duration: int
    configuration: int
    kernel: int
    of_median: float
    device: int | None
    context: int | None
    stream: int | None
    process: int | None
    pid: int | None
    correlation: int | None
    call: str | None
    called: int | None
    latency: int | None
    queued: int | None
    thread: int | None
    range: str | None


class StakeOut(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel under watch.

    Attributes:
        kernels: those watched; several where several were asked for together.
        launches: of these kernels; each is in one of `configurations`.
        total: ns, durations added up.
        share: of the time of all kernels of the trace, 0 to 1.
        origin: the trace's first event, on its own clock, ns.
        first: start of the first launch, likewise.
        last: end of the last launch, likewise.
        configurations: the one with the most time first; at most 256.
        more_configurations: those not described.
        gpus: limits of the GPUs they ran on, as far as known.
        slowest: launches furthest above the median of their configuration, among its outliers; at most 20.
        without_call: launches whose API call the trace does not have.
        remarks: what a reader must know before trusting the figures.
    """

    kernels: tuple[Kernel, ...]
    launches: int
    total: int
    share: float
    origin: int
    first: int
    last: int
    configurations: tuple[Configuration, ...]
    more_configurations: int
    gpus: tuple[Limits, ...]
    slowest: tuple[Launch, ...]
    without_call: int
    remarks: tuple[str, ...]
