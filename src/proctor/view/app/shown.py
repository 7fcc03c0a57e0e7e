"""A row as its page shows it."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec

from proctor.rows import Prompt, TextPart
from proctor.rows.records import BASE_FIELDS
from proctor.spec.camera import CameraSpec
from proctor.tasks.driving_answer import MAX_METRES
from proctor.view.browse.filters import Columns, Kind
from proctor.view.browse.rows.record import MOST_CHARACTERS, MOST_ITEMS
from proctor.view.charts.path import Path, path
from proctor.view.charts.seen import Seen, seen
from proctor.view.charts.tokens import Tokens, tokens

MOST_IMAGES = 64
MOST_POINTS = 200
_TOLD_APART = ("row_id", "checkpoint", "answer", "error_kind", "error_message", "prompt", "target", "parse_error")
_NO_LISTS: Mapping[str, list[Any]] = MappingProxyType({})
_BASE = {field.name for field in BASE_FIELDS}


@dataclass(frozen=True, slots=True)
class Message:
    """A message of the prompt: its role and its text, with ``[image 1]`` where an image stood."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A record, taken apart.

    Attributes:
        messages: the prompt as sent; one without a role where it is not understood, none where there is none.
        target: a line for each of its parts if it is a JSON object.
        scores: the task's own columns: what was parsed, and how it was marked.
        facts: the rest.
        images: how many images the row has, as far as the record tells.
        path: the waypoints of the answer and of the target, if the task has any.
        seen: the same on one of the images, where the task says how the camera sees the road.
        tokens: of the answer, if their log-probabilities were kept.
        cut: whether the answer is longer than what is shown.
    """

    record: dict[str, Any]
    messages: list[Message]
    target: str | None
    scores: list[tuple[str, Any]]
    facts: list[tuple[str, Any]]
    images: int
    path: Path | None
    seen: Seen | None
    tokens: Tokens | None
    cut: bool


def shown(
    record: dict[str, Any], lists: Mapping[str, list[Any]] = _NO_LISTS, camera: CameraSpec | None = None
) -> Shown:
    """A record of `records_of`, and what `lists_of` gives of it, for its page."""
    messages, slots = _messages(_text(record.get("prompt")))
    answer, told = _text(record.get("answer")), record.get("n_images")
    images = max(0, min(MOST_IMAGES, told if isinstance(told, int) else slots))
    said, truth = (_points(lists.get(name, [])) for name in ("waypoints", "waypoints_target"))
    there = bool(said or truth)
    own = [(name, value) for name, value in record.items() if name not in _BASE]
    rest = [(name, value) for name, value in record.items() if name in _BASE and name not in _TOLD_APART]
    return Shown(
        record=record,
        messages=messages,
        target=_lines(_text(record.get("target"))),
        scores=[(name, value) for name, value in own if value is not None],
        facts=[(name, value) for name, value in rest if value is not None],
        images=images,
        path=path(said, truth) if there else None,
        seen=seen(said, truth, camera, images) if there and camera is not None else None,
        tokens=tokens(lists.get("token_ids", []), lists.get("logprobs", []), _unread(record)),
        cut=answer is not None and len(answer) > MOST_CHARACTERS,
    )


def unasked(columns: Columns) -> tuple[str, ...]:
    """Columns that a table shows if none are chosen: how it ended, and what the task made of it."""
    first = [name for name in ("sample_id", "error_kind", "answer") if name in columns.own]
    kinds: tuple[Kind, ...] = ("yes or no", "number")
    own = [name for name, column in columns.own.items() if name not in _BASE and column.kind in kinds]
    last = [name for name in ("parse_error", "attempts", "latency_s") if name in columns.own]
    return (*first, *own[:6], *last)


def _points(points: list[Any]) -> list[tuple[float, float]]:
    """The points up to the first that is none: a gap would move all that follow."""
    sound = itertools.takewhile(lambda point: isinstance(point, list) and _is_point(point), points)
    return [(float(point[0]), float(point[1])) for point in itertools.islice(sound, MOST_POINTS)]


def _is_point(point: list[Any]) -> bool:
    return len(point) == 2 and all(
        isinstance(value, int | float) and math.isfinite(value) and abs(value) <= MAX_METRES for value in point
    )


def _unread(record: Mapping[str, Any]) -> int:
    """How many tokens there are beyond those that were read."""
    count = record.get("output_tokens")
    return max(0, count - MOST_ITEMS) if isinstance(count, int) else 0


def _text(value: Any) -> str | None:
    """A value that should be a text, even where somebody else's file holds another."""
    return None if value is None else str(value)


def _messages(prompt: str | None) -> tuple[list[Message], int]:
    """The messages, and how many images stand in them."""
    if prompt is None:
        return [], 0
    try:
        decoded = msgspec.json.decode(prompt, type=Prompt)
    except (msgspec.MsgspecError, RecursionError):
        return [Message("", prompt)], 0
    messages, count = [], 0
    for message in decoded:
        texts = []
        for part in message.parts:
            count += not isinstance(part, TextPart)
            texts.append(part.text if isinstance(part, TextPart) else f"[image {count}]")
        messages.append(Message(message.role, "\n".join(texts)))
    return messages, count


def _lines(target: str | None) -> str | None:
    if target is None:
        return None
    try:
        value = json.loads(target)
        if isinstance(value, dict):
            return "\n".join(f"{name}: {json.dumps(part, ensure_ascii=False)}" for name, part in value.items())
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return target
