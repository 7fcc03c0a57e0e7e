"""Weights to many receivers: a state dict in buckets of raw bytes, the next one packed while this one is sent.

    with Receiver("unix:/tmp/worker-0", rank="worker-0") as receiver:
        weights = receiver.receive().tensors

    with Publisher(["unix:/tmp/worker-0"]) as publisher:
        publisher.publish(model.state_dict())

`proctor.transfer.wire` has the protocol, docs/transfer.md what it promises.
"""

from __future__ import annotations

from proctor.transfer.destinations import Form
from proctor.transfer.packing import Tensors
from proctor.transfer.pipeline import Timing
from proctor.transfer.publisher import Publisher, Receipt
from proctor.transfer.receiver import Received, Receiver, State
from proctor.transfer.tensors import plan

__all__ = ["Form", "Publisher", "Receipt", "Received", "Receiver", "State", "Tensors", "Timing", "plan"]
