"""Planted faults: any engine behind a wrapper that makes chosen rows go wrong, to rehearse what a run does about it.

A fault strikes when its row reaches the engine, that is, when the engine takes it from the feed; whatever the engine
took together with that row is then in flight, as with a real fault. ``blank``, ``truncate``, ``reject`` and ``delay``
concern the answer alone: the engine works as ever and its response is changed, or held back with those behind it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from proctor.engines.base import Engine, EngineConfig, Fault, Feed, Reporter
from proctor.rows import ErrorKind, Failure, Request, Response

LONG_SECONDS = 3600


class FaultyEngine:
    """An engine with faults planted in front of it."""

    def __init__(self, engine: Engine, faults: Sequence[Fault], state: str) -> None:
        """Plants `faults`; those with `times` are counted in the directory `state`, across restarts.

        Raises:
            ValueError: a fault has `times` but there is no `state`.
        """
        self._engine = engine
        self._plants = [_Plant(fault, state) for fault in faults]

    def check(self) -> None:
        """Checks the engine."""
        self._engine.check()

    def load(self) -> None:
        """Loads the engine."""
        self._engine.load()

    def stream(self, feed: Feed, report: Reporter) -> Iterator[Response]:
        """The engine's stream, with the faults."""
        altered: dict[int, Fault] = {}
        for response in self._engine.stream(_FaultyFeed(feed, self._plants, altered), report):
            fault = altered.pop(response.id, None)
            yield response if fault is None else _alter(response, fault)

    def swap(self, config: EngineConfig, weights: str = "") -> None:
        """Swaps the engine; from then on the faults are those of `config`, which may be of this checkpoint only."""
        plants = [_Plant(fault, config.fault_state) for fault in config.faults]
        self._engine.swap(msgspec.structs.replace(config, faults=()), weights)
        self._plants = plants

    def close(self) -> None:
        """Closes the engine."""
        self._engine.close()


class _Plant:
    """One fault and whom it strikes."""

    def __init__(self, fault: Fault, state: str) -> None:
        if fault.times is not None and not state:
            raise ValueError("a fault with `times` needs a directory to count in (EngineConfig.fault_state)")
        self.fault = fault
        self._rows = frozenset(fault.rows)
        self._state = state
        self._name = "fault-" + hashlib.sha256(msgspec.msgpack.encode(fault)).hexdigest()[:12]

    def strikes(self, row: int) -> bool:
        if row < 0:  # a probe: no row of the source
            return False
        fault = self.fault
        chosen = row in self._rows or (fault.every is not None and row % fault.every < fault.below)
        return chosen and (fault.times is None or claim(self._state, self._name, fault.times))


class _FaultyFeed:
    """A feed whose chosen rows strike the engine that takes them."""

    def __init__(self, feed: Feed, plants: Sequence[_Plant], altered: dict[int, Fault]) -> None:
        self._feed = feed
        self._plants = plants
        self._altered = altered

    def take(self, room: int, *, wait: bool) -> list[Request]:
        """What the feed gives; a fault strikes here."""
        requests = self._feed.take(room, wait=wait)
        for request in requests:
            for plant in self._plants:
                if plant.strikes(request.id):
                    self._strike(plant.fault, request.id)
        return requests

    def _strike(self, fault: Fault, row: int) -> None:
        sudden = _SUDDEN.get(fault.kind)
        if sudden is None:
            self._altered[row] = fault
        else:
            sudden(row)


def claim(state: str, name: str, times: int) -> bool:
    """Takes one of `times` turns of `name`, each of which is taken once by one process.

    Args:
        state: local directory that keeps the turns taken, across processes and restarts.
        name: what is counted; part of a file name.
        times: how many turns there are.

    Returns:
        Whether there was a turn left.
    """
    directory = Path(state)
    directory.mkdir(parents=True, exist_ok=True)
    for turn in range(times):
        try:
            (directory / f"{name}-{turn}").touch(exist_ok=False)
        except FileExistsError:
            continue
        return True
    return False


def _alter(response: Response, fault: Fault) -> Response:
    if fault.kind == "delay":
        time.sleep(fault.seconds)
        return response
    if fault.kind == "reject":
        return Response.failed(response.id, Failure(ErrorKind.INFER_REJECTED, "planted fault: reject"))
    if fault.kind == "truncate":
        text = response.text or ""
        return msgspec.structs.replace(response, text=text[: (len(text) + 1) // 2], finish_reason="length")
    return Response(id=response.id, text="", finish_reason="stop", prompt_tokens=response.prompt_tokens)


def _raise(row: int) -> NoReturn:
    raise RuntimeError(f"planted fault: raise at row {row}")


def _run_out_of_memory(row: int) -> NoReturn:
    raise MemoryError(f"planted fault: oom at row {row}")


def _crash(_row: int) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _kill(_row: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _exit(_row: int) -> None:
    os._exit(3)


def _stall(_row: int) -> None:
    while True:
        time.sleep(LONG_SECONDS)


def _hold_gil(_row: int) -> None:
    libc = ctypes.PyDLL(None)  # PyDLL, unlike CDLL, keeps the interpreter's lock during a call
    while True:
        libc.sleep(LONG_SECONDS)


def _stop(_row: int) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


_SUDDEN: dict[str, Callable[[int], None]] = {
    "raise": _raise,
    "oom": _run_out_of_memory,
    "crash": _crash,
    "kill": _kill,
    "exit": _exit,
    "stall": _stall,
    "hold_gil": _hold_gil,
    "stop": _stop,
}
