"""A network between one receiver and its sender that mistreats the first message of one kind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import zmq

FAULTS = ("drop", "delay", "duplicate", "reorder", "truncate", "flip", "die")


class BadNetwork:
    """Forwards between `front`, where the receiver connects, and the sender at `back`.

    Args:
        kind: tag of the message, as in `proctor.transfer.kv.wire`.
        fault: one of `FAULTS`; from ``die`` on nothing is forwarded.
        frame: which frame is cut short or flipped: 0 checksum, 1 body, 2 and up the pieces.
    """

    def __init__(self, front: str, back: str, kind: str, fault: str, frame: int = 1) -> None:
        self.address, self._kind, self._fault, self._frame = front, kind, fault, frame
        self.hit = False
        self._dead = self._stop = False
        self._held: dict[bool, list[tuple[float, list[bytes]]]] = {True: [], False: []}
        context = zmq.Context.instance()
        self._front, self._back = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
        self._front.bind(front)
        self._back.connect(back)
        self._peer = b""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop = True
        self._thread.join(10)

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._front, zmq.POLLIN)
        poller.register(self._back, zmq.POLLIN)
        while not self._stop:
            ready = dict(poller.poll(10))
            if self._front in ready:
                self._peer, *frames = self._front.recv_multipart()
                self._pass(True, frames)
            if self._back in ready:
                self._pass(False, self._back.recv_multipart())
            for to_sender, held in self._held.items():
                while held and held[0][0] <= time.monotonic():
                    self._send(to_sender, held.pop(0)[1])
        self._front.close(0)
        self._back.close(0)

    def _pass(self, to_sender: bool, frames: list[bytes]) -> None:
        if not self.hit and msgspec.msgpack.decode(frames[1])["type"] == self._kind:
            self.hit = True
            faults: dict[str, Callable[[bool, list[bytes]], Any]] = {
                "drop": lambda _to, _frames: None,
                "delay": lambda to, frames: self._hold(to, frames, 0.1),
                "duplicate": lambda to, frames: (self._send(to, frames), self._send(to, frames)),
                "reorder": lambda to, frames: self._hold(to, frames, 0.3),
                "truncate": lambda to, frames: self._send(to, self._changed(frames, lambda frame: frame[:-1])),
                "flip": lambda to, frames: self._send(to, self._changed(frames, _flipped)),
                "die": lambda _to, _frames: self._die(),
            }
            faults[self._fault](to_sender, frames)
            return
        self._send(to_sender, frames)
        if self._fault == "reorder":  # what was held back comes behind the next one
            while self._held[to_sender]:
                self._send(to_sender, self._held[to_sender].pop(0)[1])

    def _hold(self, to_sender: bool, frames: list[bytes], seconds: float) -> None:
        self._held[to_sender].append((time.monotonic() + seconds, frames))

    def _changed(self, frames: list[bytes], change: Callable[[bytes], bytes]) -> list[bytes]:
        index = min(self._frame, len(frames) - 1)
        return [change(frame) if number == index else frame for number, frame in enumerate(frames)]

    def _die(self) -> None:
        self._dead = True

    def _send(self, to_sender: bool, frames: list[bytes]) -> None:
        if self._dead:
            return
        if to_sender:
            self._back.send_multipart(frames)
        else:
            self._front.send_multipart([self._peer, *frames])


def _flipped(frame: bytes) -> bytes:
    middle = len(frame) // 2
    return frame[:middle] + bytes([frame[middle] ^ 4]) + frame[middle + 1 :]
