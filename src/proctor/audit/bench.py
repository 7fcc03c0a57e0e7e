"""Where arms sit: engines under a supervisor each, asked wave by wave, and what came of every probe."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from proctor.audit.model import Observation, Sitting
from proctor.audit.probes import Probe
from proctor.audit.traffic import Wave
from proctor.rows import Response
from proctor.supervise.asking import Asking, EngineOrder, Start, supervised
from proctor.tasks import Task
from proctor.tasks.marking import mark

__all__ = ["Asking", "EngineOrder", "Sat", "Seat", "Start", "supervised"]


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
