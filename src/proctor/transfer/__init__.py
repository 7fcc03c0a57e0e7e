"""Moves tensors fast, and no wrong byte unnoticed: weights to many receivers, key-value blocks to one.

Usable alone: nothing here knows of runs, rows or engines. The public names load on first use, so that what needs no
torch does not wait for it. Key-value blocks have their own: `proctor.transfer.kv`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor._lazy import lazy

if TYPE_CHECKING:
    from proctor.transfer.errors import Reason, TransferError
    from proctor.transfer.identities import Identities
    from proctor.transfer.published import Published
    from proctor.transfer.publishing import draft_for, publish
    from proctor.transfer.reading import identify, read_checkpoint
    from proctor.transfer.weights import Publisher, Receipt, Received, Receiver, State, plan

_HOMES = {
    "Identities": "identities",
    "Published": "published",
    "Publisher": "weights",
    "Reason": "errors",
    "Receipt": "weights",
    "Received": "weights",
    "Receiver": "weights",
    "State": "weights",
    "TransferError": "errors",
    "draft_for": "publishing",
    "identify": "reading",
    "plan": "weights",
    "publish": "publishing",
    "read_checkpoint": "reading",
}

__all__ = [
    "Identities",
    "Published",
    "Publisher",
    "Reason",
    "Receipt",
    "Received",
    "Receiver",
    "State",
    "TransferError",
    "draft_for",
    "identify",
    "plan",
    "publish",
    "read_checkpoint",
]

__getattr__, __dir__ = lazy(__name__, _HOMES)
