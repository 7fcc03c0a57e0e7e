"""Moves tensors fast, and no wrong byte unnoticed: weights to many receivers, key-value blocks to one.

Usable alone: nothing here knows of runs, rows or engines. The public names load on first use, so that what needs no
torch does not wait for it. Key-value blocks have their own: `proctor.transfer.kv`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proctor.transfer.errors import Reason, TransferError
    from proctor.transfer.identities import Identities
    from proctor.transfer.published import Published
    from proctor.transfer.publishing import draft_for, publish
    from proctor.transfer.reading import identify, read_checkpoint
    from proctor.transfer.weights import Publisher, Receipt, Received, Receiver, State, plan

_HOMES = {
    "Identities": "proctor.transfer.identities",
    "Published": "proctor.transfer.published",
    "Publisher": "proctor.transfer.weights",
    "Reason": "proctor.transfer.errors",
    "Receipt": "proctor.transfer.weights",
    "Received": "proctor.transfer.weights",
    "Receiver": "proctor.transfer.weights",
    "State": "proctor.transfer.weights",
    "TransferError": "proctor.transfer.errors",
    "draft_for": "proctor.transfer.publishing",
    "identify": "proctor.transfer.reading",
    "plan": "proctor.transfer.weights",
    "publish": "proctor.transfer.publishing",
    "read_checkpoint": "proctor.transfer.reading",
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


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
