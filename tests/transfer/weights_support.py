"""Publisher and receivers in one process, each receiver in a thread of its own."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from proctor.transfer.tensors import as_bytes
from proctor.transfer.weights import Publisher, Received, Receiver

_threads: dict[Receiver, ThreadPoolExecutor] = {}


@contextmanager
def home() -> Iterator[Path]:
    """A directory whose name is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="pw-") as place:
        yield Path(place)


class Side:
    """A receiver that takes epochs in a thread, which is the same for all sides of this receiver."""

    def __init__(self, receiver: Receiver, epochs: int = 1, wait: float = 30.0) -> None:
        self.receiver = receiver
        self.outcomes: list[Received | BaseException] = []
        self._wait, self._epochs = wait, epochs
        entered, real = threading.Event(), receiver._readable
        receiver._readable = lambda deadline: (entered.set(), real(deadline))[1]  # type: ignore[method-assign]
        self._done = _thread_of(receiver).submit(self._run)
        entered.wait(10)  # whoever comes after an epoch has failed does not hear of it
        receiver._readable = real  # type: ignore[method-assign]

    def _run(self) -> None:
        for _ in range(self._epochs):
            try:
                self.outcomes.append(self.receiver.receive(self._wait))
            except BaseException as error:
                self.outcomes.append(error)

    def outcome(self, seconds: float = 60.0) -> Received | BaseException:
        """The last one."""
        self._done.result(seconds)  # raises if the receiver hangs
        return self.outcomes[-1]

    def received(self) -> Received:
        outcome = self.outcome()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def _thread_of(receiver: Receiver) -> ThreadPoolExecutor:
    return _threads.setdefault(receiver, ThreadPoolExecutor(1))


def close(receiver: Receiver) -> None:
    """The receiver and its thread."""
    receiver.close()
    if receiver in _threads:
        _threads.pop(receiver).shutdown()


@contextmanager
def receivers(count: int = 1, **options: Any) -> Iterator[list[Receiver]]:
    with home() as place:
        made = [Receiver(f"unix:{place}/{index}", rank=f"r{index}", **options) for index in range(count)]
        try:
            yield made
        finally:
            for receiver in made:
                close(receiver)


def transfer(
    tensors: Mapping[str, torch.Tensor],
    *,
    transport: str = "stream",
    into: Mapping[str, torch.Tensor] | None = None,
    count: int = 1,
    **options: Any,
) -> list[Received]:
    """One epoch, to `count` receivers."""
    with receivers(count, into=into) as made:
        sides = [Side(receiver) for receiver in made]
        with Publisher(
            [receiver.address for receiver in made], transport=transport, deadline=10, **options
        ) as publisher:
            publisher.publish(tensors)
        return [side.received() for side in sides]


def same(found: Mapping[str, torch.Tensor], sent: Mapping[str, torch.Tensor]) -> None:
    """Bitwise, types and shapes, too."""
    assert found.keys() == sent.keys()
    for name, tensor in sent.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape), name
        assert torch.equal(as_bytes(found[name]), as_bytes(tensor)), name


def in_thread(call: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread
