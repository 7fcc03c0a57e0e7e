"""A scripted engine with planted numerics, asked in hand-outs of chosen sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from proctor.engines.base import EngineConfig
from proctor.engines.scripted import ScriptedEngine
from proctor.rows import Request, Response
from tests.engines.tiny import ask


class HandOuts:
    """A feed that gives one hand-out at a time, as far as there is room."""

    def __init__(self, hand_outs: Iterable[Sequence[Request]]) -> None:
        self._waiting = [list(hand_out) for hand_out in hand_outs]

    def take(self, room: int, *, wait: bool) -> list[Request]:
        while self._waiting and not self._waiting[0]:
            self._waiting.pop(0)
        if not self._waiting:
            return []
        taken, self._waiting[0] = self._waiting[0][:room], self._waiting[0][room:]
        return taken


def planted(*effects: dict[str, Any], batch_size: int = 64, dtype: str = "auto", **numerics: Any) -> EngineConfig:
    return EngineConfig(
        "scripted", batch_size=batch_size, dtype=dtype, options={"numerics": {"effects": list(effects), **numerics}}
    )


def loaded(config: EngineConfig) -> ScriptedEngine:
    engine = ScriptedEngine(config)
    engine.check()
    engine.load()
    return engine


def asked(rows: Iterable[int], text: str = "What is on the road?", **sampling: Any) -> list[Request]:
    wanted = {"logprobs": True, "top_logprobs": 2, "max_tokens": 64, **sampling}
    return [ask(row, text=f"{text} row {row}", **wanted) for row in rows]


def told(engine: ScriptedEngine, *hand_outs: Sequence[Request]) -> list[Response]:
    """Responses in the order of the hand-outs, without what the supervisor adds."""
    return list(engine.stream(HandOuts(hand_outs), lambda tokens: None))


def alone(config: EngineConfig, requests: Sequence[Request]) -> list[Response]:
    """Every row by itself, in a fresh engine."""
    return told(loaded(config), *([request] for request in requests))


def together(config: EngineConfig, requests: Sequence[Request]) -> list[Response]:
    """All rows at once, in a fresh engine."""
    return told(loaded(config), requests)


def differing(one: Sequence[Response], other: Sequence[Response]) -> list[int]:
    """Rows whose tokens or log-probabilities are not the same."""
    return [a.id for a, b in zip(one, other, strict=True) if replace(a, text=None) != replace(b, text=None)]
