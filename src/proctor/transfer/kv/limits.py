"""How much a sender holds, and how it stands."""

from __future__ import annotations

import msgspec

from proctor.rows import UserError
from proctor.transfer.manifest import ALIGN

LEASE_SECONDS = 30.0
"""As in NIXL's connector (`kv_lease_duration`)."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a sender holds.

    Attributes:
        slots: slots of shared memory.
        slot_bytes: room of each, a multiple of 256; a block takes as many as it needs.
        queue_blocks: blocks that wait for slots.
        queue_bytes: bytes of all blocks that wait for slots.
        lease_seconds: how long a block waits for its receiver or for a sign of life of it.
    """

    slots: int = 64
    slot_bytes: int = 1 << 20
    queue_blocks: int = 16
    queue_bytes: int = 256 << 20
    lease_seconds: float = LEASE_SECONDS

    def check(self) -> None:
        """Raises: UserError: see above."""
        if self.slot_bytes < ALIGN or self.slot_bytes % ALIGN:
            raise UserError(f"{self.slot_bytes} is no multiple of {ALIGN}", where="slot_bytes", fix=f"take {1 << 20}")
        for name in ("slots", "queue_blocks", "queue_bytes", "lease_seconds"):
            if getattr(self, name) <= 0:
                raise UserError(f"{getattr(self, name)} holds nothing", where=name, fix="take a positive number")


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """A sender at one moment.

    Attributes:
        queued: blocks that wait for slots.
        queued_bytes: bytes of those.
        leases: blocks in slots.
        free_slots: slots without a block.
        waiting: wishes for blocks that are not there yet.
        receivers: receivers that have greeted and live.
        delivered: blocks that a receiver has, confirmed.
        sent_bytes: bytes of all blocks that were offered.
        expired: requests that ended because a lease ran out.
        aborted: requests that ended in any other failure.
        late_notices: messages about leases that were over.
        refused: receivers that did not fit.
        corrupt: control messages that were not what was sent.
    """

    queued: int
    queued_bytes: int
    leases: int
    free_slots: int
    waiting: int
    receivers: int
    delivered: int
    sent_bytes: int
    expired: int
    aborted: int
    late_notices: int
    refused: int
    corrupt: int
