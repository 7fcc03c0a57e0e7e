"""Shared by the tests of the supervisor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from proctor.engines import EngineConfig, Fault
from proctor.rows import Event, ImagePart, Message, Request, Response, TextPart
from proctor.supervise import Settings, Supervisor


def ask(row: int, images: int = 0) -> Request:
    parts = (*(ImagePart() for _ in range(images)), TextPart("What is on the road?"))
    return Request(row, (Message("user", parts),), images=(b"picture",) * images)


def scripted(directory: Path, *faults: Fault, batch_size: int = 64, **options: Any) -> EngineConfig:
    return EngineConfig(
        "scripted", batch_size=batch_size, options=options, faults=faults, fault_state=str(directory / "faults")
    )


class Supervised:
    """A supervisor with short deadlines, and everything that it told of."""

    def __init__(self, config: EngineConfig, directory: Path, **settings: Any) -> None:
        defaults = {
            "stall_seconds": 20.0,
            "load_seconds": 20.0,
            "init_attempts": 3,
            "window": 64,
            "stalls_dir": directory / "stalls",
            "backoff_seconds": 0.02,
            "hold_seconds": 0.1,
            "probe_seconds": 60.0,
        }
        self.events: list[Event] = []
        self.supervisor = Supervisor(
            config, Settings(**{**defaults, **settings}), name="engine", on_event=self.events.append
        )
        self.supervisor.start()

    def answers(self, rows: Iterable[int]) -> dict[int, Response]:
        responses = list(self.supervisor.answer(map(ask, rows)))
        by_row = {response.id: response for response in responses}
        assert len(by_row) == len(responses)
        return by_row

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def event(self, kind: str) -> Event:
        return next(event for event in self.events if event.kind == kind)

    def wait_for(self, kind: str, seconds: float = 20.0) -> Event:
        wait_until(lambda: kind in self.kinds(), seconds)
        return self.event(kind)


def wait_until(met: Callable[[], bool], seconds: float = 20.0) -> None:
    give_up = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < give_up, "waited in vain"
        time.sleep(0.01)


def failures(responses: dict[int, Response]) -> dict[int, str]:
    return {row: response.failure.kind.value for row, response in responses.items() if response.failure is not None}


def process_gone(pid: int) -> bool:
    """Whether the process has ended; one that only waits to be reaped has."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"
