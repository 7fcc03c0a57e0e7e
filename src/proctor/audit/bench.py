"""Where arms sit: engines under a supervisor each, asked wave by wave, and what came of every probe."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from proctor.audit.model import Observation, Sitting
from proctor.audit.probes import Probe
from proctor.audit.traffic import Wave
from proctor.engines import EngineConfig
from proctor.rows import Event, Response, UserError
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


class EngineSeat:
    """A running engine that arms may sit at, one after another."""

    def __init__(
        self, supervisor: Supervisor, versions: dict[str, str], task: Task, targets: dict[int, object]
    ) -> None:
        self._supervisor = supervisor
        self._versions = versions
        self._task, self._targets = task, targets

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
        if self._supervisor.state == "broken":
            reason = self._supervisor.fatal or (answered[0].failure.message if answered[0].failure else "it died")
            raise UserError(f"the engine of arm {sitting.arm} does not work: {reason}", where="audit")
        return Sat(
            sitting=sitting,
            observations=tuple(self._observed(sitting, response) for response in answered),
            seconds=seconds,
            requests=sum(map(len, waves)),
            tokens=sum(len(response.token_ids) for response in answered),
            disturbed=sum(response.attempts > 1 for response in answered),
            versions=dict(self._versions),
        )

    def _ask(self, wave: Wave) -> list[Response]:
        """The answers to the wave's probes."""
        futures = self._supervisor.submit_together([asked.request for asked in wave])
        responses = [future.result() for future in futures]
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


@contextmanager
def seated(order: EngineOrder, probes: Sequence[Probe], task: Task) -> Iterator[EngineSeat]:
    """An engine, started when it is first asked, and ended behind the block."""
    versions: dict[str, str] = {}

    def listen(event: Event) -> None:
        if event.kind == "engine.loaded":
            versions.update({name: str(value) for name, value in event.data.items() if name != "load_seconds"})

    with tempfile.TemporaryDirectory(prefix="proctor-audit-") as directory:
        faults = _with_fault_state(order.config, Path(directory) / "faults")
        settings = Settings(
            stall_seconds=order.stall_seconds,
            load_seconds=order.load_seconds,
            init_attempts=order.init_attempts,
            window=max(2, order.config.batch_size),
            stalls_dir=Path(directory),
            python=order.python,
            env=order.env,
        )
        supervisor = Supervisor(faults, replace(settings, hold_seconds=0.0), name="audit", on_event=listen)
        supervisor.start()
        targets = {probe.request.id: probe.target for probe in probes}
        try:
            yield EngineSeat(supervisor, versions, task, targets)
        finally:
            supervisor.close()


def _with_fault_state(config: EngineConfig, folder: Path) -> EngineConfig:
    """The configuration, with a place for planted faults and failing loads to be counted in."""
    return msgspec.structs.replace(config, fault_state=str(folder))
