"""Theoretical occupancy of a launch on the GPUs of a side."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.trace.diff.sides import Config
from proctor.trace.launches.occupancy import Occupancy, limits_of, occupancy
from proctor.trace.model import Gpu


def occupancy_of(gpus: Sequence[Gpu], config: Config | None) -> Occupancy | None:
    """Occupancy on the first GPU whose limits are known; None where no GPU's or a figure of the launch is not."""
    if config is None or config.registers is None or config.dynamic_shared is None:
        return None
    threads = config.block[0] * config.block[1] * config.block[2]
    limits = next((limits for gpu in gpus if (limits := limits_of(gpu)) is not None), None)
    if limits is None or threads <= 0:
        return None
    shared = (config.static_shared or 0) + config.dynamic_shared
    return occupancy(limits, threads=threads, registers=config.registers, shared=shared)
