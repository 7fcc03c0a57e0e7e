"""Waves: how often a launch fills the GPU, and how much of the GPU its last wave leaves empty."""

from __future__ import annotations

import msgspec

from proctor.trace.launches.occupancy import Limits, Occupancy


class Waves(msgspec.Struct, frozen=True, kw_only=True):
    """How the blocks of one launch go through the GPU, if all take equally long and nothing else runs there.

    Attributes:
        blocks: of the grid.
        at_once: blocks that the GPU can hold at once.
        waves: `blocks` / `at_once`.
        full: waves that fill the GPU.
        tail: blocks of the last wave if it does not fill the GPU; 0 if it does.
        tail_share: of the places of that last wave, those in use, 0 to 1; 1 without a tail.
        efficiency: of the places over all waves, those in use, 0 to 1: `waves` / its next whole number.
        filled: occupancy that this grid can reach, 0 to 1: with fewer blocks than fit at once it is below the
            theoretical one. PyTorch's profiler means this by "est. achieved occupancy" (kernelOccupancy in Kineto).
        idle_sms: SMs that cannot have a block, since there are fewer blocks than SMs; 0 otherwise.
        limited_by_clusters: clusters of blocks must fit together, and fewer do than the SMs would hold without.
    """

    blocks: int
    at_once: int
    waves: float
    full: int
    tail: int
    tail_share: float
    efficiency: float
    filled: float
    idle_sms: int
    limited_by_clusters: bool = False

    @property
    def single(self) -> bool:
        """Whether all blocks fit at once. Persistent kernels are launched so; whether it is one, no trace says."""
        return self.blocks <= self.at_once


def waves(
    limits: Limits, occupancy: Occupancy, *, blocks: int, cluster: int = 1, max_active_clusters: int | None = None
) -> Waves | None:
    """Waves of a launch.

    Args:
        limits: of the GPU; without its number of SMs there is no answer.
        occupancy: blocks an SM holds.
        blocks: of the grid, x * y * z.
        cluster: blocks of a cluster, x * y * z; 1 without clusters.
        max_active_clusters: clusters that the GPU can hold at once, as the driver said; None or 0 where not known.

    Returns:
        None where the SMs are not known, the launch does not fit, or the grid is empty.
    """
    if not limits.sm_count or not occupancy.blocks or blocks <= 0:
        return None
    by_blocks = occupancy.blocks * limits.sm_count
    at_once = by_blocks
    if cluster > 1:
        clusters = by_blocks // cluster
        at_once = cluster * (min(clusters, max_active_clusters) if max_active_clusters else clusters)
    if at_once == 0:
        return None
    full, tail = divmod(blocks, at_once)
    return Waves(
        blocks=blocks,
        at_once=at_once,
        waves=blocks / at_once,
        full=full,
        tail=tail,
        tail_share=tail / at_once if tail else 1.0,
        efficiency=blocks / at_once / (full + bool(tail)),
        filled=occupancy.share * min(1.0, blocks / by_blocks),
        idle_sms=max(0, limits.sm_count - blocks),
        limited_by_clusters=at_once < by_blocks,
    )


def waves_in_words(found: Waves) -> str:
    """One line, e.g. ``2.36 waves: 2 full, the last one 36% full``."""
    by = " (clusters must fit together)" if found.limited_by_clusters else ""
    if found.single:
        rest = f"; at least {found.idle_sms} SMs have none" if found.idle_sms else ""
        blocks = "1 block" if found.blocks == 1 else f"all {found.blocks:,} blocks at once"
        return f"{blocks}, of {found.at_once:,} that fit{by}{rest}"
    last = f", the last one {found.tail_share:.0%} full" if found.tail else ""
    return f"{found.waves:,.2f} waves of {found.at_once:,} blocks{by}: {found.full:,} full{last}"
