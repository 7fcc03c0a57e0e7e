"""Where arms sit: engines under a supervisor each, asked wave by wave, and what came of every probe."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from proctor.audit.model import Observation, Sitting
from proctor.audit.probes import Probe
from proctor.audit.traffic import Wave
from proctor.engines import EngineConfig
from proctor.rows import Event, Request, Response, UserError
from proctor.supervise import Settings, Supervisor
from proctor.tasks import Task
from proctor.tasks.marking import mark


@dataclass(frozen=True, slots=True)
class EngineOrder:
    """One engine as an arm wants it.

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


class Sat(msgspec.Struct, frozen=True, kw_only=True):
    """One sitting and what came of it.

    Attributes:
        seconds: of asking, without the engine's start.
        requests: asked, neighbours included.
        tokens: decoded for the probes, where the engine says.
        disturbed: probes that were asked again because the engine died meanwhile: their company was then another.
        versions: of what computes the answers.
    """

    sitting: Sitting
    observations: tuple[Observation, ...]
    seconds: float
    requests: int
    tokens: int
    disturbed: int = 0
    versions: dict[str, str] = {}


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


_POLL_SECONDS = 0.02
Start = Callable[[EngineOrder], AbstractContextManager[Asking]]
"""Starts the engine of an order, and ends it behind the block."""


class Seat:
    """A running engine that arms sit at, one after another."""

    def __init__(self, engine: Asking, probes: Sequence[Probe], task: Task) -> None:
        self._engine, self._task = engine, task
        self._targets = {probe.request.id: probe.target for probe in probes}

    def sit(self, sitting: Sitting, waves: Sequence[Wave], *, warm: bool) -> Sat:
        """Asks everything wave by wave; a wave begins when the one before has come back whole.

        Args:
            sitting: which arm, and its round.
            waves: what is asked.
            warm: ask all of it once before, and look only at the second answers.

        Raises:
            UserError: the engine cannot start.
        """
        if warm:
            for wave in waves:
                self._ask(wave)
        began = time.monotonic()
        answered = [response for wave in waves for response in self._ask(wave)]
        seconds = time.monotonic() - began
        return Sat(
            sitting=sitting,
            observations=tuple(self._observed(sitting, response) for response in answered),
            seconds=seconds,
            requests=sum(map(len, waves)),
            tokens=sum(len(response.token_ids) for response in answered),
            disturbed=sum(response.attempts > 1 for response in answered),
            versions=dict(self._engine.versions),
        )

    def _ask(self, wave: Wave) -> list[Response]:
        """The answers to the wave's probes."""
        responses = self._engine.ask([asked.request for asked in wave])
        return [response for asked, response in zip(wave, responses, strict=True) if asked.probe]

    def _observed(self, sitting: Sitting, response: Response) -> Observation:
        failure = None if response.failure is None else (response.failure.kind.value, response.failure.message)
        if failure is None and response.attempts > 1:
            failure = ("audit.disturbed", "the engine died while it had this row; its company was then another")
        parsed, score = self._marked(response)
        return Observation(
            arm=sitting.arm,
            round=sitting.round,
            row_id=response.id,
            text=response.text,
            token_ids=response.token_ids,
            logprobs=response.logprobs,
            top=response.top_logprobs,
            finish_reason=response.finish_reason,
            parsed=parsed,
            score=score,
            failure=failure,
            prompt_tokens=response.prompt_tokens,
            seconds=response.latency_s,
        )

    def _marked(self, response: Response) -> tuple[str | None, float | None]:
        """What the task reads from an answer, as JSON, and the share of its marks that say "right"."""
        if response.text is None:
            return None, None
        found = mark(self._task, response.text, self._targets.get(response.id))
        if not found.parsed:
            return None, None
        marks = [value for value in found.scores.values() if isinstance(value, bool)]
        parsed = msgspec.json.encode(found.scores, order="deterministic", enc_hook=str).decode()
        return parsed, sum(marks) / len(marks) if marks else None


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
            raise UserError(f"the engine does not work: {why}", where="audit")
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
    with tempfile.TemporaryDirectory(prefix="proctor-audit-") as directory:
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
            while supervisor.state == "starting":  # what an arm takes is the asking, and not the engine's start
                time.sleep(_POLL_SECONDS)
            yield engine
        finally:
            supervisor.close()
