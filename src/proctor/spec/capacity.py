"""What a run may take of each node, as `proctor plan` works it out. Has no influence on the answers."""

from __future__ import annotations

from pydantic import Field

from proctor.spec.model import MOST, SpecModel


class CapacitySpec(SpecModel):
    """What a run may take of the cluster. `proctor plan` prints this block ready to use; a key that is not set is no
    limit."""

    engines_per_node: int | None = Field(default=None, ge=1, le=MOST)
    """Most engines on one node."""
    engine_memory_mb: int | None = Field(default=None, ge=1, le=MOST)
    """Memory, in megabytes, that Ray sets aside for one engine (``memory=`` of its actor)."""
    concurrent_reads: int | None = Field(default=None, ge=1, le=MOST)
    """Most tasks that read at once, in the whole cluster."""
    read_memory_mb: int | None = Field(default=None, ge=1, le=MOST)
    """Memory, in megabytes, that Ray sets aside for a task that reads (its ``memory=``)."""
    prepare_workers: int | None = Field(default=None, ge=1, le=MOST)
    """Most tasks that prepare rows at once, in the whole cluster. With the same number and the same memory as for
    reading, Ray does both in one task."""
    prepare_memory_mb: int | None = Field(default=None, ge=1, le=MOST)
    """Memory, in megabytes, that Ray sets aside for a task that prepares rows (its ``memory=``)."""
    object_store_mb: int | None = Field(default=None, ge=80, le=MOST)
    """Object store of a node that the plan counts on, in megabytes: the size of that of a Ray of the run's own, unless
    `ray.object_store_mb` says otherwise."""
