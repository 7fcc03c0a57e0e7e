"""An engine under a supervisor of its own, asked from outside a run: for those who compare engines."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from proctor.engines.base import EngineConfig
from proctor.rows import Event, Request, Response, UserError
from proctor.supervise.settings import Settings
from proctor.supervise.supervisor import Supervisor

_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class EngineOrder:
    """One engine as somebody wants it.

    Attributes:
        config, env: its configuration and the environment of its process.
        python: interpreter of its process; None is the one that runs Proctor.
        stall_seconds, load_seconds, init_attempts: as in a run's `limits`.
    """

    config: EngineConfig
    env: dict[str, str] = field(default_factory=dict)
    python: str | None = None
    stall_seconds: float = 120.0
    load_seconds: float = 900.0
    init_attempts: int = 1


class Asking(Protocol):
    """A running engine."""

    @property
    def versions(self) -> dict[str, str]:
        """Versions of what computes the answers."""

    def ask(self, requests: Sequence[Request]) -> list[Response]:
        """All requests at once; their responses in the same order.

        Raises:
            UserError: the engine does not work at all.
        """


Start = Callable[[EngineOrder], AbstractContextManager[Asking]]
"""Starts the engine of an order, and ends it behind the block."""


class _Supervised:
    """An engine under a supervisor."""

    def __init__(self, supervisor: Supervisor, said: Callable[[str], str]) -> None:
        self._supervisor, self._said = supervisor, said
        self.versions: dict[str, str] = {}

    def ask(self, requests: Sequence[Request]) -> list[Response]:
        responses = [self._told(future.result()) for future in self._supervisor.submit_together(requests)]
        failures = [response.failure for response in responses if response.failure is not None]
        if failures and self._supervisor.state == "broken":
            why = self._said(str(self._supervisor.fatal or failures[0].message))
            raise UserError(f"the engine does not work: {why}", where="engine")
        return responses

    def _told(self, response: Response) -> Response:
        if response.failure is None:
            return response
        failure = msgspec.structs.replace(response.failure, message=self._said(response.failure.message))
        return msgspec.structs.replace(response, failure=failure)


@contextmanager
def supervised(
    order: EngineOrder,
    *,
    name: str = "audit",
    stalls: Path | None = None,
    listen: Callable[[Event], None] = lambda _: None,
    said: Callable[[str], str] = str,
) -> Iterator[Asking]:
    """The order's engine in a child process under a supervisor, loaded, or broken for good.

    Args:
        order: which engine.
        name: of the engine, in events and in the names of its files.
        stalls: local directory for stack dumps and the engine's log; None keeps none of them.
        listen: is told of every event, from the supervisor's thread.
        said: puts the places of files in messages into other words.
    """
    with tempfile.TemporaryDirectory(prefix=f"proctor-{name}-") as directory:
        folder = Path(directory)
        settings = Settings(
            stall_seconds=order.stall_seconds,
            load_seconds=order.load_seconds,
            init_attempts=order.init_attempts,
            window=max(2, order.config.batch_size),
            stalls_dir=stalls or folder,
            python=order.python,
            env=order.env,
            hold_seconds=0.0,
        )
        versions: dict[str, str] = {}

        def heed(event: Event) -> None:
            if event.kind == "engine.loaded":
                versions.update({what: str(value) for what, value in event.data.items() if what != "load_seconds"})
            listen(event)

        config = msgspec.structs.replace(order.config, fault_state=str(folder / "faults"))
        supervisor = Supervisor(config, settings, name=name, on_event=heed)
        supervisor.start()
        engine = _Supervised(supervisor, said)
        engine.versions = versions
        try:
            while supervisor.state == "starting":  # what is timed is the asking, and not the engine's start
                time.sleep(_POLL_SECONDS)
            yield engine
        finally:
            supervisor.close()
