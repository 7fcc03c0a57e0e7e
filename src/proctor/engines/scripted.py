"""An engine that answers deterministically without a model: for dry runs, rehearsals and tests."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import msgspec

from proctor.engines.base import EngineConfig, Feed, Reporter
from proctor.engines.faults import claim
from proctor.rows import Request, Response, TextPart, UserError


class ScriptedOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the scripted engine.

    Attributes:
        answer: the answer to every row; ``{row_id}``, ``{n_images}`` and ``{prompt}`` (its text) are filled in.
        answers: answers of single rows, by row id as text.
        row_ms: milliseconds that one row takes. Rows are served one after another, so the engine's rate is
            ``1000 / row_ms`` rows a second whatever its batch size.
        load_seconds: seconds that loading takes.
        load_failures: how many of the first loads fail, counted across restarts in `EngineConfig.fault_state`.
        close_seconds: seconds that closing takes.
        helpers: idle processes that the engine starts beside itself, as vLLM starts its workers.
    """

    answer: str = "answer {row_id}"
    answers: dict[str, str] = {}
    row_ms: float = 0.0
    load_seconds: float = 0.0
    load_failures: int = 0
    close_seconds: float = 0.0
    helpers: int = 0


class ScriptedEngine:
    """Takes up to a batch of rows at a time and answers them one by one."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._options = _options(config)
        self._helpers: list[subprocess.Popen[bytes]] = []

    def check(self) -> None:
        """Refuses answers for what cannot be a row id.

        Raises:
            UserError: names the first one.
        """
        for row in self._options.answers:
            if not row.isdecimal():
                raise UserError(f"{row!r} is not a row id", where="engine.answers", fix="use whole numbers from 0")
        if self._options.load_failures and not self._config.fault_state:
            raise ValueError("load_failures needs a directory to count in (EngineConfig.fault_state)")

    def load(self) -> None:
        """Takes its time, then fails as often as it was told to."""
        time.sleep(self._options.load_seconds)
        failures = self._options.load_failures
        if failures and claim(self._config.fault_state, "load", failures):
            raise RuntimeError("planted fault: load")
        self._helpers = [subprocess.Popen(["sleep", "86400"]) for _ in range(self._options.helpers)]  # noqa: S607

    def stream(self, feed: Feed, report: Reporter) -> Iterator[Response]:
        """Answers row by row; the words of an answer count as its tokens."""
        pause = self._options.row_ms / 1000
        while batch := feed.take(self._config.batch_size, wait=True):
            for request in batch:
                if pause:
                    time.sleep(pause)
                text = self._answer(request)
                report(len(text.split()))
                yield Response(id=request.id, text=text, finish_reason="stop")

    def close(self) -> None:
        """Takes its time, then ends the helpers."""
        time.sleep(self._options.close_seconds)
        for helper in self._helpers:
            helper.kill()
            helper.wait()

    def _answer(self, request: Request) -> str:
        own = self._options.answers.get(str(request.id))
        text = self._options.answer if own is None else own
        if "{" not in text:
            return text
        # Not str.format: an answer may well be JSON, full of braces of its own.
        text = text.replace("{row_id}", str(request.id)).replace("{n_images}", str(len(request.images)))
        return text.replace("{prompt}", _text_of(request)) if "{prompt}" in text else text


def _options(config: EngineConfig) -> ScriptedOptions:
    try:
        return msgspec.convert(config.options, ScriptedOptions)
    except msgspec.ValidationError as error:
        raise UserError(str(error), where="engine.options") from None


def _text_of(request: Request) -> str:
    parts = (part for message in request.prompt for part in message.parts)
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))
