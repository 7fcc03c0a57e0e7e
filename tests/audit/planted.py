"""Audits in this process, those of the scripted engine with planted numerics: an audit then takes a blink."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from proctor.audit.bench import Asking, EngineOrder
from proctor.audit.conduct import Audit, Auditor
from proctor.audit.lab import Lab
from proctor.engines.registry import make_engine
from proctor.rows import Request, Response
from proctor.spec import build_spec


class HandOut:
    """A feed of one hand-out."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._waiting = list(requests)

    def take(self, room: int, *, wait: bool) -> list[Request]:
        taken, self._waiting = self._waiting[:room], self._waiting[room:]
        return taken


class InProcess:
    """An engine of any kind, without a supervisor and a child."""

    def __init__(self, order: EngineOrder) -> None:
        self.versions = {order.config.kind: "1"}
        self._engine = make_engine(order.config)
        self._engine.check()
        self._engine.load()

    def ask(self, requests: Sequence[Request]) -> list[Response]:
        found = {response.id: response for response in self._engine.stream(HandOut(requests), lambda _: None)}
        return [found[request.id] for request in requests]

    def close(self) -> None:
        self._engine.close()


@contextmanager
def in_process(order: EngineOrder) -> Iterator[Asking]:
    with patch.dict(os.environ, order.env), closing(InProcess(order)) as engine:
        yield engine


def spec_of(
    folder: Path, *effects: dict[str, Any], rows: int = 10, batch_size: int = 20, audit: dict[str, Any] | None = None,
    questions: Sequence[str] = (), answers: Sequence[str] = (), pictures: Sequence[bytes] = (), dtype: str = "auto",
    sampling: dict[str, Any] | None = None, **numerics: Any,
) -> dict[str, Any]:  # fmt: skip
    """A spec of an engine with these effects, and its rows.

    Args:
        folder: where the rows are written.
        effects: entries of ``numerics.effects``.
        rows, batch_size, audit, dtype, sampling: of the spec.
        questions, answers, pictures: of the rows, in their order; each has a default.
        numerics: further entries of ``engine.numerics``.
    """
    questions = questions or [f"What is on road {row}?" for row in range(rows)]
    for row, picture in enumerate(pictures):
        (folder / f"{row}.png").write_bytes(picture)
    lines = [
        {
            "question": question,
            "answer": answers[row] if answers else "clear",
            "image": f"{row}.png" if pictures else None,
        }
        for row, question in enumerate(questions)
    ]
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    columns = {"prompt": "question", "target": "answer"}
    return {
        "run_dir": str(folder / "run"),
        "source": {
            "kind": "jsonl",
            "path": str(folder / "rows.jsonl"),
            "columns": {**columns, "images": ["image"]} if pictures else columns,
        },
        "engine": {
            "kind": "scripted",
            "checkpoints": ["planted"],
            "batch_size": batch_size,
            "dtype": dtype,
            "numerics": {"shortest": 3, "longest": 5, "effects": list(effects), **numerics},
        },
        "task": {"kind": "exact"},
        "sampling": sampling or {},
        "audit": {"sample": len(questions), **(audit or {})},
    }


def audited(folder: Path, *effects: dict[str, Any], **settings: Any) -> tuple[Audit, Lab]:
    """An audit of an engine with these effects; see `spec_of`."""
    return Auditor(build_spec(spec_of(folder, *effects, **settings)), start=in_process).run()


def own_answers(folder: Path, **settings: Any) -> list[str]:
    """What the engine answers where nothing strikes, row by row: the right answers of an exam that it passes."""
    _, lab = audited(folder, audit={"arms": ["repeat"]}, **settings)
    return [observation.text or "" for observation in lab.observations("baseline", [0])]


def threshold(audit: Audit, knob: str) -> tuple[Any, Any]:
    """Where the knob's effect begins: the largest value without it, the smallest with it."""
    (found,) = [found for found in audit.verdict.thresholds if found.knob == knob]
    return found.below, found.above


def evident(audit: Audit, *words: str) -> bool:
    """Whether one line of the evidence has all these words."""
    return any(all(word in line for word in words) for line in audit.verdict.evidence)
