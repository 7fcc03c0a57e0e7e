"""The process that reads prompts for `proctor.engines.disaggregated`: batches in by a pipe, blocks out to a sender.

``python -m proctor.engines.prefill_process FD`` with the number of an inherited socket; it ends with that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

import msgspec

from proctor.engines.base import EngineConfig
from proctor.engines.prepare import Prepared, prepare
from proctor.engines.refusal import Refused, one_line
from proctor.engines.torchvision_shim import declare_missing_operators
from proctor.rows import ErrorKind, Failure, Request, Response
from proctor.transfer.kv.limits import Limits

if TYPE_CHECKING:
    from proctor.engines.split_model import SplitModel
    from proctor.transfer.kv.sender import Sender


class Start(msgspec.Struct, frozen=True, tag="start"):
    """First message to the process.

    Attributes:
        limits: None is as much as batches of usual prompts need.
        lease_seconds: how long a block may wait for the other side, where there are no `limits`.
    """

    config: EngineConfig
    address: str
    limits: Limits | None
    lease_seconds: float


class Batch(msgspec.Struct, frozen=True, tag="batch"):
    """Rows to read; `number` names their blocks."""

    number: int
    requests: tuple[Request, ...]


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The model is loaded and the sender listens."""


class Broken(msgspec.Struct, frozen=True, tag="broken"):
    """The process cannot go on, and why."""

    message: str


class Shipped(msgspec.Struct, frozen=True):
    """A block and the rows that are in it, in its order, with the lengths of their prompts."""

    block: str
    rows: tuple[int, ...]
    prompt_tokens: tuple[int, ...]


class Read(msgspec.Struct, frozen=True, tag="read"):
    """What became of a batch: each row is in a block or answered."""

    number: int
    shipped: tuple[Shipped, ...]
    answered: tuple[Response, ...]


ToProcess = Start | Batch
FromProcess = Ready | Broken | Read


def main(descriptor: int) -> None:
    """Works until the other end of the pipe is closed."""
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    pipe, decoder = Connection(descriptor), msgspec.msgpack.Decoder(ToProcess)
    try:
        start = decoder.decode(pipe.recv_bytes())
        if not isinstance(start, Start):
            raise TypeError(f"{type(start).__name__} came before the start")
        _work(start, pipe, decoder)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # nobody wants anything any more
    except Exception as error:
        pipe.send_bytes(msgspec.msgpack.encode(Broken(one_line(error))))
        raise


def _work(start: Start, pipe: Connection, decoder: msgspec.msgpack.Decoder[ToProcess]) -> None:
    declare_missing_operators()
    from proctor.engines.split_model import SplitModel
    from proctor.transfer.kv.sender import Sender

    model = SplitModel(start.config)
    limits = start.limits or model.limits(start.config.batch_size, start.lease_seconds)
    with Sender(start.address, model.layout, limits) as sender:
        pipe.send_bytes(msgspec.msgpack.encode(Ready()))
        while True:
            batch = decoder.decode(pipe.recv_bytes())
            if not isinstance(batch, Batch):
                raise TypeError(f"{type(batch).__name__} came for a batch")
            pipe.send_bytes(msgspec.msgpack.encode(_read(batch, model, sender)))


def _read(batch: Batch, model: SplitModel, sender: Sender) -> Read:
    rows, answered, shipped = list[Prepared](), list[Response](), list[Shipped]()
    for request in batch.requests:
        try:
            rows.append(prepare(request, model.chat))
        except Refused as refusal:
            answered.append(refusal.response(request.id))
    # Many processors take a batch with images or one without, not a mixture.
    for kind, alike in (
        ("images", [row for row in rows if row.images]),
        ("text", [row for row in rows if not row.images]),
    ):
        if alike:
            _ship(f"{batch.number}.{kind}", alike, model, sender, shipped, answered)
    return Read(batch.number, tuple(shipped), tuple(answered))


def _ship(
    name: str,
    rows: Sequence[Prepared],
    model: SplitModel,
    sender: Sender,
    shipped: list[Shipped],
    answered: list[Response],
) -> None:
    """Reads rows and hands them to the sender; if that fails for several, each is tried alone."""
    try:
        read = model.prefill(rows, name)
        if read.block is not None:
            sender.put(read.block)
    except Refused as refusal:  # only a row that is alone is ever refused here
        answered += [refusal.response(row.request.id) for row in rows]
    except Exception as error:
        if len(rows) > 1:
            for row in rows:
                _ship(f"{name}.{row.request.id}", [row], model, sender, shipped, answered)
        else:
            failure = Failure(ErrorKind.INFER_FAILED, f"prefill: {one_line(error)}")
            answered.append(Response.failed(rows[0].request.id, failure))
    else:
        answered += read.refused
        if read.block is not None:
            shipped.append(Shipped(name, read.rows, read.prompt_tokens))


if __name__ == "__main__":
    main(int(sys.argv[1]))
