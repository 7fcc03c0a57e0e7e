"""Stands in for ``torch.cuda`` where there is no GPU, with the names and arguments that the device uses of it.

It runs nothing late: what it is for is which stream something was done on, what was recorded, and what never ends.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from typing import Any, Self

import pytest
import torch

REAL_EVENT, REAL_STREAM = torch.cuda.Event, torch.cuda.Stream


class FakeStream:
    def __init__(self, cuda: FakeCuda, number: int, index: int) -> None:
        self.cuda, self.number, self.device = cuda, number, torch.device("cuda", index)
        self.waits: list[Any] = []

    def wait_event(self, event: Any) -> None:
        self.waits.append(event)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FakeStream) and (self.number, self.device) == (other.number, other.device)

    def __hash__(self) -> int:
        return hash((self.number, self.device))


class FakeEvent:
    over = True
    broken = False

    def __init__(self, enable_timing: bool = False) -> None:
        self.recorded_on: FakeStream | None = None

    def record(self, stream: Any) -> None:
        assert self.recorded_on is None, "recorded twice"
        self.recorded_on = stream

    def query(self) -> bool:
        if self.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return self.over

    def elapsed_time(self, end: Self) -> float:
        return 2.0


class FakeCuda:
    """Put in place with `install`.

    Attributes:
        made: how many streams were made.
        current: the stack of current streams; the first is the default one.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = 0
        self.current = [FakeStream(self, 0, 0)]
        for name, function in (
            ("is_available", lambda: True),
            ("device_count", lambda: 1),
            ("current_stream", lambda device=None: self.current[-1]),
            ("default_stream", lambda device=None: FakeStream(self, 0, 0)),
            ("stream", self._within),
            ("Stream", self._make),
            ("Event", FakeEvent),
        ):
            monkeypatch.setattr(torch.cuda, name, function)
        monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: True)

    def _make(self, device: int) -> FakeStream:
        self.made += 1
        return FakeStream(self, self.made, device)

    @contextmanager
    def _within(self, stream: FakeStream) -> Any:
        self.current.append(stream)
        yield
        self.current.pop()


def signatures_are_real() -> None:
    """What is faked takes what the real thing takes."""
    assert "enable_timing" in inspect.signature(REAL_EVENT.__new__).parameters
    assert "device" in inspect.signature(REAL_STREAM.__new__).parameters
    for real, fake in ((REAL_EVENT, FakeEvent), (REAL_STREAM, FakeStream)):
        for name in vars(fake):
            if not name.startswith("_") and callable(getattr(fake, name)):
                wanted = list(inspect.signature(getattr(fake, name)).parameters)
                assert len(inspect.signature(getattr(real, name)).parameters) == len(wanted), name
