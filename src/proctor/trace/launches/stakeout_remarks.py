"""What a reader must know before trusting what watching a kernel found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proctor.trace.launches.gpu_limits import GpuLimits
from proctor.trace.launches.occupancy import Limits
from proctor.trace.launches.stakeout_model import Configuration
from proctor.trace.trace import Trace

BIG_SHARED = 65_536
"""Bytes of shared memory from which PyTorch's profiler says 0 % for every launch, in public traces."""


def remarks_of(
    trace: Trace, found: Sequence[Configuration], gpus: Sequence[Limits], missing: int, user: GpuLimits
) -> Iterator[str]:
    """The remarks, the gravest first."""
    yield from trace_remarks(trace, missing)
    yield from gpu_remarks(gpus, unknown=any(each.gpu is None for each in found), user=user)
    yield from occupancy_remarks(found)


def trace_remarks(trace: Trace, missing: int) -> Iterator[str]:
    """What the trace lacks."""
    if missing:
        why = (
            "they were called before the trace begins, or their calls were not recorded"
            if trace.has("calls")
            else "the trace has no API calls"
        )
        have = "1 launch has" if missing == 1 else f"{missing:,} launches have"
        yield f"{have} no API call here: {why}; latencies are of the others"


def gpu_remarks(gpus: Sequence[Limits], *, unknown: bool, user: GpuLimits) -> Iterator[str]:
    """Where the figures of the GPUs are from, if not from the trace."""
    if unknown:
        yield (
            "the trace does not say which GPU this is (or it is one whose limits are not known): no occupancy; "
            "name it with --gpu, e.g. --gpu H100"
        )
    if user.named is not None and not user.used:
        yield "the GPU that you named is not used: the trace says itself which it is"
    for limits in gpus:
        if not limits.confirmed:
            capability = ".".join(map(str, limits.compute))
            yield f"limits of compute capability {capability} are as published by NVIDIA; no trace has confirmed them"
        if limits.sm_count is None:
            yield "the number of SMs is not known: no waves; name the GPU with --gpu"


def occupancy_remarks(found: Sequence[Configuration]) -> Iterator[str]:
    """What must be known of occupancies."""
    wrong = [
        each
        for each in found
        if each.reported_occupancy == 0
        and each.occupancy is not None
        and each.occupancy.blocks
        and (each.static_shared or 0) + (each.dynamic_shared or 0) >= BIG_SHARED
    ]
    if wrong:
        launches = sum(each.launches for each in wrong)
        told = "1 launch" if launches == 1 else f"{launches:,} launches"
        yield (
            f"the profiler reports an occupancy of 0 % for {told} with 64 KiB of shared memory or more: "
            "it always does for such launches; take the figure here"
        )
    if any(each.occupancy_executed for each in found):
        yield "the driver set aside less shared memory than an SM has: fewer blocks fitted than occupancy says"
    if any(each.in_green_context for each in found):
        yield "launches in a green context have only some of the SMs, the trace does not say how many: no waves"
    if any(each.occupancy is not None and each.occupancy.unknown for each in found):
        yield "the trace does not say how many registers or how much shared memory was used: occupancy is at most so"
