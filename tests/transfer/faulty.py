"""A connection that breaks: a proxy between a publisher and a receiver that plants one fault at one frame."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Literal, NamedTuple

Action = Literal["drop", "delay", "duplicate", "reorder", "truncate", "flip", "die", "none"]
HEADER = struct.Struct(">IQ")


class Fault(NamedTuple):
    """What happens.

    Attributes:
        action: ``delay`` is a short one: it has to do no harm.
        towards: whose frames are counted.
        frame: at which of them, from 0, pieces of buckets included.
        place: for ``flip``: which bit, as a share of the frame.
    """

    action: Action = "none"
    towards: Literal["receiver", "publisher"] = "receiver"
    frame: int = 0
    place: float = 0.5
    seconds: float = 0.05


class Proxy:
    """Listens at `path`, connects to `target`; each connection meets `fault`, until it has happened once."""

    def __init__(self, path: Path, target: str) -> None:
        self.address, self._target = f"unix:{path}", target.removeprefix("unix:")
        self._connections = 0
        self.plant(Fault())
        self._closed = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(8)
        self._listener.settimeout(0.02)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def plant(self, fault: Fault) -> None:
        self.fault, self.happened = fault, False
        self._counts = {"receiver": 0, "publisher": 0}

    def close(self) -> None:
        self._closed.set()
        for thread in self._threads:
            thread.join(10)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                near, _ = self._listener.accept()
            except TimeoutError:
                continue
            far = socket.socket(socket.AF_UNIX)
            try:
                far.connect(self._target)
            except OSError:
                near.close()
                far.close()
                continue
            self._connections += 1
            self._counts = {"receiver": 0, "publisher": 0}
            # One thread for each connection: closing in two would let a number be used again while the other polls.
            thread = threading.Thread(target=self._both, args=(near, far), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _both(self, near: socket.socket, far: socket.socket) -> None:
        number = self._connections
        lanes = {near: _Lane(near, far, "receiver", number), far: _Lane(far, near, "publisher", number)}
        with near, far, contextlib.suppress(OSError, EOFError):
            while not self._closed.is_set():
                readable, _, _ = select.select([near, far], [], [], 0.02)
                for sock in readable:
                    self._pass(lanes[sock])

    def _pass(self, lane: _Lane) -> None:
        frame = lane.frame()
        fault = self.fault
        # What an epoch that failed left on its connection counts no more.
        mine = lane.number == self._connections
        hit = mine and not self.happened and (fault.towards, fault.frame) == (lane.towards, self._counts[lane.towards])
        self._counts[lane.towards] += mine
        if hit and fault.action != "none":
            self.happened = True
            self._break(lane, frame, fault)
        else:
            lane.send(frame)
            lane.send(lane.held)
            lane.held = b""

    def _break(self, lane: _Lane, frame: bytes, fault: Fault) -> None:
        if fault.action == "delay":
            time.sleep(fault.seconds)
            lane.send(frame)
        elif fault.action == "duplicate":
            lane.send(frame + frame)
        elif fault.action == "reorder":
            lane.held = frame
        elif fault.action == "flip":
            bit = min(int(fault.place * len(frame) * 8), len(frame) * 8 - 1)
            flipped = bytearray(frame)
            flipped[bit // 8] ^= 1 << bit % 8
            lane.send(bytes(flipped))
        elif fault.action == "truncate":
            lane.send(frame[: len(frame) // 2])
            raise EOFError
        elif fault.action == "die":
            raise EOFError


class _Lane:
    """One direction of a connection."""

    def __init__(self, source: socket.socket, target: socket.socket, towards: str, number: int) -> None:
        self._source, self._target, self.towards, self.number = source, target, towards, number
        self.held = b""

    def frame(self) -> bytes:
        head = self._exactly(HEADER.size)
        return head + self._exactly(HEADER.unpack(head)[0] & ~(1 << 31))

    def send(self, data: bytes) -> None:
        self._target.sendall(data)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            got = self._source.recv(count - len(data))
            if not got:
                raise EOFError
            data += got
        return data
