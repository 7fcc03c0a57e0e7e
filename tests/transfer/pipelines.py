"""Publishing and receiving in the fewest lines, on any device, for tests of what waits for what."""

from __future__ import annotations

import inspect
import textwrap
from collections import deque
from typing import Any

import pytest
import torch

from proctor.transfer.devices.base import Device, Event, Stream
from proctor.transfer.devices.virtual import VirtualDevice
from proctor.transfer.links.base import Link
from proctor.transfer.links.ordered import Carrier, OrderedLink
from proctor.transfer.slots import Ring

NBYTES = 64


class Wire:
    """What NCCL is between two ranks: a transport that begins when both sides are there, in order."""

    def __init__(self) -> None:
        self._box: deque[torch.Tensor] = deque()
        self._sent: deque[Event] = deque()
        self.out: Carrier = self._out
        self.into: Carrier = self._into

    def _out(self, stream: Stream, part: torch.Tensor) -> None:
        stream.run(lambda: self._box.append(part.clone()), part)
        self._sent.append(stream.record())

    def _into(self, stream: Stream, part: torch.Tensor) -> None:
        stream.wait(self._sent.popleft())
        stream.run(lambda: part.copy_(self._box.popleft()), part)


def publish(
    device: Device, ring: Ring, link: Link, sources: list[torch.Tensor], *, ready: bool = True, drain: bool = True
) -> None:
    """Without `ready` or `drain`: a mutant."""
    written = device.ready()
    for source in sources:
        with ring.next() as held:
            if ready:
                held.stream.wait(written)
            held.stream.copy(held.part(source.numel()), source)
            link.send(held, source.numel())
    if drain:
        ring.drain()


def receive(device: Device, ring: Ring, link: Link, targets: list[torch.Tensor], *, drain: bool = True) -> None:
    for target in targets:
        with ring.next() as held:
            link.receive(held, target.numel())
            held.stream.copy(target, held.part(target.numel()))
    if drain:
        ring.drain()


def expected(count: int) -> list[torch.Tensor]:
    return [torch.arange(NBYTES, dtype=torch.uint8) + 3 * index + 1 for index in range(count)]


def over_the_virtual_device(
    device: VirtualDevice, buckets: int, buffers: int = 2, *, ready: bool = True, drain: bool = True
) -> list[torch.Tensor]:
    """What arrives of `expected`, whose bytes the caller's stream writes, and which the caller then overwrites."""
    wire, wanted = Wire(), expected(buckets)
    sources = [torch.zeros(NBYTES, dtype=torch.uint8) for _ in wanted]
    targets = [torch.zeros(NBYTES, dtype=torch.uint8) for _ in wanted]
    for source, value in zip(sources, wanted, strict=True):
        device.caller.copy(source, value)
    sender = OrderedLink(device, wire.out, lambda: None, "out")
    receiver = OrderedLink(device, wire.into, lambda: None, "in")
    publish(device, Ring(device, NBYTES, buffers), sender, sources, ready=ready, drain=drain)
    for source in sources:
        source.fill_(255)
    receive(device, Ring(device, NBYTES, buffers), receiver, targets)
    return [target.clone() for target in targets]


def without(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, line: str, instead: str = "pass") -> None:
    """Takes one line out of a function of the library: the mutant of the tests that follow."""
    function = getattr(owner, name)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(line) == 1, f"{name} has changed: {line!r} is there {source.count(line)} times"
    scope = dict(function.__globals__)
    code = source.replace(line, instead).replace("@override\n", "")
    exec(compile(f"from __future__ import annotations\n{code}", f"<{name} without {line}>", "exec"), scope)
    monkeypatch.setattr(owner, name, scope[name])
