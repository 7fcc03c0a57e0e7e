"""The transformers engine in two processes: a child reads prompts, this one writes answers meanwhile."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Final, final

import msgspec

from proctor.engines.base import EngineConfig, EngineDied, Reporter, unheard
from proctor.engines.prefill_process import Batch, Broken, FromProcess, Read, Ready, Shipped, Start, ToProcess
from proctor.engines.refusal import one_line
from proctor.engines.torchvision_shim import declare_missing_operators
from proctor.engines.transformers import TransformersEngine
from proctor.rows import ErrorKind, Failure, Request, Response
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.kv.limits import Limits

if TYPE_CHECKING:
    from proctor.engines.split_model import SplitModel
    from proctor.transfer.kv.receiver import Receiver, Way

AHEAD: Final = 2
"""Batches that the child may have in hand: one that it reads while this process answers the other."""
DEADLINE_SECONDS: Final = 600.0
"""For the child to load its model, and for it to read one batch."""


def disaggregated(
    config: EngineConfig,
    requests: Iterable[Request],
    *,
    limits: Limits | None = None,
    way: Way = "any",
    report: Reporter = unheard,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> Iterator[Response]:
    """Answers requests as the transformers engine does, prompts read in a process of their own.

    Args:
        config: of the transformers engine; its batches are read and answered together.
        requests: pulled as there is room.
        limits: how much the reading side may hold for this one; a batch that does not fit is read row by row. None is
            room for two batches of prompts of 4,096 tokens, and blocks that wait as long as `deadline_seconds`: one
            waits while the batch before it is answered.
        way: how blocks come, see `proctor.transfer.kv.receiver`.
        report: told the tokens that are decoded.
        deadline_seconds: see `DEADLINE_SECONDS`.

    Yields:
        One response for each request, in any order; a row whose block was lost fails as ``infer.unreachable``.

    Raises:
        UserError: no model, or one that cannot be split.
        EngineDied: the child has ended or says nothing within the deadline.
        Exception: whatever the model raises while it writes answers: there is no second try row by row on this side.
    """
    TransformersEngine(config).check()
    with tempfile.TemporaryDirectory(prefix="proctor-kv-") as directory:
        start = Start(config, f"ipc://{directory}/blocks", limits, deadline_seconds)
        with _child(start, deadline_seconds) as child:
            yield from _answers(config, start, child, iter(requests), way, report)


@final
class _Child:
    """The other process, by its pipe."""

    def __init__(self, pipe: Connection, seconds: float) -> None:
        self._pipe, self._seconds = pipe, seconds
        self._decoder = msgspec.msgpack.Decoder(FromProcess)

    def tell(self, message: ToProcess) -> None:
        """Sends it."""
        try:
            self._pipe.send_bytes(msgspec.msgpack.encode(message))
        except OSError as error:
            raise EngineDied(f"the prefill process is gone: {error}") from None

    def hear(self) -> Ready | Read:
        """The next message; raises `EngineDied` where there will be none."""
        if not self._pipe.poll(self._seconds):
            raise EngineDied(f"the prefill process has said nothing for {self._seconds:g} s")
        try:
            message = self._decoder.decode(self._pipe.recv_bytes())
        except (EOFError, OSError):
            raise EngineDied("the prefill process is gone") from None
        if isinstance(message, Broken):
            raise EngineDied(f"the prefill process: {message.message}")
        return message


@contextmanager
def _child(start: Start, seconds: float) -> Iterator[_Child]:
    mine, theirs = Pipe()
    with mine:
        with theirs:
            number = theirs.fileno()
            command = [sys.executable, "-m", "proctor.engines.prefill_process", str(number)]
            process = subprocess.Popen(command, pass_fds=[number], stdin=subprocess.DEVNULL)
        try:
            child = _Child(mine, seconds)
            child.tell(start)
            yield child
        finally:
            mine.close()  # the child ends with its pipe, unless it is stuck
            _end(process)


def _end(process: subprocess.Popen[bytes], seconds: float = 15.0) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _answers(
    config: EngineConfig, start: Start, child: _Child, requests: Iterator[Request], way: Way, report: Reporter
) -> Iterator[Response]:
    declare_missing_operators()
    from proctor.engines.split_model import SplitModel
    from proctor.transfer.kv.receiver import Receiver

    model = SplitModel(config)
    if not isinstance(child.hear(), Ready):
        raise EngineDied("the prefill process read a batch before it was ready")
    with Receiver(start.address, model.layout, way=way) as receiver:
        waiting: deque[Batch] = deque()
        number = 0
        while True:
            while len(waiting) < AHEAD and (taken := tuple(islice(requests, config.batch_size))):
                waiting.append(Batch(number, taken))
                child.tell(waiting[-1])
                number += 1
            if not waiting:
                return
            yield from _answered(waiting.popleft(), child, receiver, model, report)


def _answered(
    batch: Batch, child: _Child, receiver: Receiver, model: SplitModel, report: Reporter
) -> Iterator[Response]:
    read = child.hear()
    if not isinstance(read, Read) or read.number != batch.number:
        raise EngineDied(f"the prefill process answers another batch than {batch.number}")
    yield from read.answered
    by_id = {request.id: request for request in batch.requests}
    for shipped, block in [(shipped, receiver.ask(shipped.block)) for shipped in read.shipped]:
        requests = [by_id[row] for row in shipped.rows]
        try:
            received = receiver.result(block)
            yield from model.decode(requests, received, shipped.prompt_tokens, report)
        except TransferError as error:
            yield from _lost(shipped, error)


def _lost(shipped: Shipped, error: TransferError) -> Iterator[Response]:
    if error.reason is Reason.DEAD:
        raise EngineDied(f"the prefill process is gone: {error}") from error
    for row in shipped.rows:
        yield Response.failed(row, Failure(ErrorKind.INFER_UNREACHABLE, f"the block was lost: {one_line(error)}"))
