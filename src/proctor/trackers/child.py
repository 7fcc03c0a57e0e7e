"""A tracker's process: reads requests on stdin, has the tracker's library do them, answers on what was stdout.

The library may print, hang, hold the GIL or crash: all of that stays in here, and the driver ends this process when it
has waited long enough. When the driver is gone, so is this process with everything that it has started.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from queue import SimpleQueue
from typing import BinaryIO

import msgspec

from proctor.trackers.backends.base import Backend, RefusedError
from proctor.trackers.messages import Batch, Failed, Finish, Finished, Open, Ready, Reply, Request, Taken
from proctor.trackers.processes import MARK, end_marked
from proctor.trackers.redaction import redacted

_PR_SET_PDEATHSIG = 1
_NICE = 5
_OPENERS = {kind: f"proctor.trackers.backends.{kind}" for kind in ("mlflow", "wandb", "comet", "tensorboard")}


def main() -> None:
    """Serves the driver until it says that nothing more comes; then waits to be ended."""
    _die_with_the_driver()
    os.nice(_NICE)
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print must not get among the replies
    inbox: SimpleQueue[Request] = SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, inbox), daemon=True).start()
    try:
        serve(inbox, lambda reply: _say(replies, reply))
    except BaseException as error:
        _say(replies, Failed(redacted(f"{type(error).__name__}: {error}")))
    threading.Event().wait()  # not to exit: libraries hang in what they do then, and the driver ends this process


def serve(inbox: SimpleQueue[Request], say: Callable[[Reply], None]) -> None:
    """Does what comes until a `Finish`; lets through whatever the library raises."""
    first = inbox.get()
    assert isinstance(first, Open)
    backend: Backend = import_module(_OPENERS[first.kind]).opened(first)
    say(Ready())
    while not isinstance(request := inbox.get(), Finish):
        assert isinstance(request, Batch)
        say(send(backend, request))
    backend.finish(request.ok)
    say(Finished())


def send(backend: Backend, batch: Batch) -> Taken:
    """Hands a batch over; if the tracker refuses it, one entry at a time, so that the guilty one costs only itself."""
    upto = batch.entries[-1].n
    try:
        return Taken(upto, backend.send(batch.entries))
    except RefusedError:
        arrived, refused = True, {}
        for entry in batch.entries:
            try:
                arrived = backend.send([entry]) and arrived
            except RefusedError as error:
                refused[entry.n] = redacted(str(error))
        return Taken(upto, arrived, refused)


def _say(replies: BinaryIO, reply: Reply) -> None:
    with contextlib.suppress(OSError):
        replies.write(msgspec.json.encode(reply) + b"\n")


def _read(stdin: BinaryIO, inbox: SimpleQueue[Request]) -> None:
    for line in stdin:
        inbox.put(msgspec.json.decode(line, type=Request))
    end_marked(os.environ[MARK], os.getpid(), spare=os.getpid())
    os.kill(os.getpid(), signal.SIGKILL)


def _die_with_the_driver() -> None:
    """Linux ends this process with the driver even when a library holds the GIL, and nobody reads stdin. What a library
    has started then outlives it for as long as it does not look after itself, as W&B's service does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    main()
