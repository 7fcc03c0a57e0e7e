"""An engine that answers deterministically without a model: for dry runs, rehearsals and tests."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence

import msgspec

from proctor.engines import news
from proctor.engines.base import EngineConfig, Feed, Reporter
from proctor.engines.faults import claim
from proctor.engines.numerics import Numerics
from proctor.engines.planted_effects import Effects, prompt_units
from proctor.engines.planted_swap import SwapKind, name_of, planted_swap
from proctor.engines.pseudo_model import ULPS, PseudoModel
from proctor.engines.refusal import Refused, rejected
from proctor.engines.swap_check import check_configuration
from proctor.rows import Request, Response, TextPart, UserError


class ScriptedOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the scripted engine.

    Attributes:
        answer: the answer to every row; ``{row_id}``, ``{n_images}``, ``{prompt}`` (its text) and ``{checkpoint}`` (the
            last part of the model's path) are filled in.
        answers: answers of single rows, by row id as text.
        row_ms: milliseconds that one row takes. Rows are served one after another, so the engine's rate is
            ``1000 / row_ms`` rows a second whatever its batch size.
        load_seconds: seconds that loading takes.
        load_failures: how many of the first loads fail, counted across restarts in `EngineConfig.fault_state`.
        close_seconds: seconds that closing takes.
        compiles: by row id as text, seconds for which the engine says that it compiles before it answers that row.
        helpers: idle processes that the engine starts beside itself, as vLLM starts its workers.
        swap: what a swap does: succeeds (``ok``), is refused, raises, leaves the old checkpoint in place without a word
            (``stale``), never ends (``hang``), or stops (``stop``, by SIGSTOP) or ends the process (``crash``).
        swap_at: only a swap to a checkpoint of one of these names (last parts of paths) does that, others succeed;
            empty: each.
        swap_times: how many of those swaps do that, counted as `load_failures` are; None: all.
        numerics: answers come from a pseudo-model instead, token by token, with differences where they are planted.
    """

    answer: str = "answer {row_id}"
    answers: dict[str, str] = {}
    row_ms: float = 0.0
    load_seconds: float = 0.0
    load_failures: int = 0
    close_seconds: float = 0.0
    compiles: dict[str, float] = {}
    helpers: int = 0
    swap: SwapKind = "ok"
    swap_at: tuple[str, ...] = ()
    swap_times: int | None = None
    numerics: Numerics | None = None


class ScriptedEngine:
    """Takes up to a batch of rows at a time and answers them one by one."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._options = options_of(config)
        self._helpers: list[subprocess.Popen[bytes]] = []
        self._exam: _Exam | None = None
        self._checkpoint = name_of(config.model)

    def check(self) -> None:
        """Refuses answers for what cannot be a row id, and numerics that make no sense.

        Raises:
            UserError: names the first mistake.
        """
        for row in self._options.answers:
            if not row.isdecimal():
                raise UserError(f"{row!r} is not a row id", where="engine.answers", fix="use whole numbers from 0")
        counted = self._options.load_failures or self._options.swap_times is not None
        if counted and not self._config.fault_state:
            raise ValueError("load_failures and swap_times need a directory to count in (EngineConfig.fault_state)")
        if self._config.dtype not in ULPS:
            raise UserError(f"there is no number format {self._config.dtype!r}", where="engine.dtype")
        if self._options.numerics is not None:
            self._options.numerics.check()
            self._options.numerics.knob_values()

    def load(self) -> None:
        """Takes its time, then fails as often as it was told to."""
        time.sleep(self._options.load_seconds)
        failures = self._options.load_failures
        if failures and claim(self._config.fault_state, "load", failures):
            raise RuntimeError("planted fault: load")
        if self._options.numerics is not None:
            self._exam = _Exam(self._options.numerics, self._config.dtype, self._checkpoint)
        self._helpers = [subprocess.Popen(["sleep", "86400"]) for _ in range(self._options.helpers)]  # noqa: S607

    def stream(self, feed: Feed, report: Reporter) -> Iterator[Response]:
        """Answers row by row; the words of an answer count as its tokens."""
        answered = self._exam or self._script
        pause = self._options.row_ms / 1000 * (self._exam.slowdown if self._exam else 1.0)
        while batch := feed.take(self._config.batch_size, wait=True):
            for response in answered(batch):
                if pause:
                    time.sleep(pause)
                report(len((response.text or "").split()))
                yield response

    def _script(self, batch: Sequence[Request]) -> Iterator[Response]:
        for request in batch:
            self._compile(request.id)
            try:
                yield Response(id=request.id, text=self._answer(request), finish_reason="stop")
            except Refused as refusal:
                yield refusal.response(request.id)

    def _compile(self, row: int) -> None:
        seconds = self._options.compiles.get(str(row), 0.0)
        if seconds:
            news.compiling(began=True)
            time.sleep(seconds)
            news.compiling(began=False)

    def swap(self, config: EngineConfig, weights: str = "") -> None:  # noqa: ARG002 (the contract)
        """Does what is planted.

        Raises:
            SwapRefused: planted, or more than the model differs.
            RuntimeError: planted.
        """
        check_configuration(self._config, config)
        name = name_of(config.model)
        fault = self._planted(name)
        planted_swap(fault, name)
        self._config = config
        if fault == "stale":
            return
        self._checkpoint = name
        if self._options.numerics is not None:
            self._exam = _Exam(self._options.numerics, config.dtype, name)

    def _planted(self, name: str) -> SwapKind:
        kind, names, times = self._options.swap, self._options.swap_at, self._options.swap_times
        if kind == "ok" or (names and name not in names):
            return "ok"
        return kind if times is None or claim(self._config.fault_state, "swap", times) else "ok"

    def close(self) -> None:
        """Takes its time, then ends the helpers."""
        time.sleep(self._options.close_seconds)
        for helper in self._helpers:
            helper.kill()
            helper.wait()

    def _answer(self, request: Request) -> str:
        if request.sampling.forced:
            raise rejected("a scripted answer has no tokens that could be forced (see engine.numerics)")
        own = self._options.answers.get(str(request.id))
        text = self._options.answer if own is None else own
        if "{" not in text:
            return text
        # Not str.format: an answer may well be JSON, full of braces of its own.
        text = text.replace("{row_id}", str(request.id)).replace("{n_images}", str(len(request.images)))
        text = text.replace("{checkpoint}", self._checkpoint)
        return text.replace("{prompt}", _text_of(request)) if "{prompt}" in text else text


class _Exam:
    """The pseudo-model, and the effects that hit its batches."""

    def __init__(self, numerics: Numerics, dtype: str, checkpoint: str) -> None:
        self._model = PseudoModel(numerics.of(checkpoint), dtype)
        self._effects = Effects(numerics, dtype)
        self._vocabulary = numerics.vocabulary
        self._unit = numerics.unit

    @property
    def slowdown(self) -> float:
        return self._effects.slowdown

    def __call__(self, batch: Sequence[Request]) -> Iterator[Response]:
        for request, strikes in zip(batch, self._effects.strikes(batch), strict=True):
            if all(0 <= token < self._vocabulary for token in request.sampling.forced):
                length = len(prompt_units(request, self._unit))
                yield msgspec.structs.replace(self._model.answer(request, strikes), prompt_tokens=length)
            else:
                refusal = rejected(f"a forced token is not one of the {self._vocabulary}")
                yield refusal.response(request.id)


def options_of(config: EngineConfig) -> ScriptedOptions:
    """The options as they were meant.

    Raises:
        UserError: they are not such options.
    """
    try:
        return msgspec.convert(config.options, ScriptedOptions)
    except msgspec.ValidationError as error:
        raise UserError(str(error), where="engine.options") from None


def _text_of(request: Request) -> str:
    parts = (part for message in request.prompt for part in message.parts)
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))
