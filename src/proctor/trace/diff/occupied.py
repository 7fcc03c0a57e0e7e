"""Theoretical occupancy of a change's usual launch on both sides."""

from __future__ import annotations

from proctor.trace.diff.changes import Change
from proctor.trace.diff.sides import Config, Side
from proctor.trace.occupancy import Occupancy, limits_of, occupancy


def occupancies(a: Side, b: Side, change: Change) -> tuple[Occupancy | None, Occupancy | None]:
    """Occupancy of what most launches were launched with; None where the GPU or a figure of the launch is not known."""
    return _occupancy(a, change.config_a), _occupancy(b, change.config_b)


def _occupancy(side: Side, config: Config | None) -> Occupancy | None:
    if config is None or config.registers is None or config.dynamic_shared is None:
        return None
    threads = config.block[0] * config.block[1] * config.block[2]
    found = [limits for gpu in side.gpus if (limits := limits_of(gpu)) is not None]
    if not found or threads <= 0:
        return None
    shared = (config.static_shared or 0) + config.dynamic_shared
    return occupancy(found[0], threads=threads, registers=config.registers, shared=shared)
