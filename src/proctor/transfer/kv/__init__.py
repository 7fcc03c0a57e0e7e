"""Ships the key-value cache of a request from the worker that has read its prompt to the worker that writes its answer.

`Sender` and `Receiver` are the two ends. Control messages go over ZMQ, bytes through shared memory on one machine or
beside the messages; a block is the receiver's only when the sender has confirmed that its lease still held after the
bytes were copied and their checksums compared. The public names load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor._lazy import lazy

if TYPE_CHECKING:
    from proctor.transfer.kv.block import Block
    from proctor.transfer.kv.layout import Layout
    from proctor.transfer.kv.limits import Limits
    from proctor.transfer.kv.receiver import Receiver
    from proctor.transfer.kv.sender import Sender

_HOMES = {
    "Block": "block",
    "Layout": "layout",
    "Limits": "limits",
    "Receiver": "receiver",
    "Sender": "sender",
}

__all__ = ["Block", "Layout", "Limits", "Receiver", "Sender"]

__getattr__, __dir__ = lazy(__name__, _HOMES)
