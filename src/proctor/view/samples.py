"""A handful of rows to look at: their images, what was asked, what each checkpoint answered, what was right."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from proctor.rows import ProctorError, Prompt, TextPart
from proctor.rows.records import BASE_FIELDS
from proctor.spec import RunSpec
from proctor.tasks import ParseError
from proctor.tasks.driving import SAME_POINT_METRES
from proctor.tasks.driving_answer import answer_of
from proctor.view.charts.path import Path, path
from proctor.view.frames import data_uri, read_images
from proctor.view.records import Records

MOST_SAMPLES, MOST_FRAMES = 6, 4
_BASE = {field.name for field in BASE_FIELDS}


@dataclass(frozen=True, slots=True)
class Answer:
    """What one checkpoint said about a row.

    Attributes:
        text: the answer, None if there is none.
        trouble: why there is no answer, or why it could not be parsed.
        marked: whether it was compared with a target.
        wrong: the yes-or-no columns of the task that say no; empty when everything was right.
        ade, fde: mean distance of its waypoints, and distance of the last ones, in metres.
    """

    checkpoint: str
    text: str | None
    trouble: str | None
    marked: bool
    wrong: list[str]
    ade: float | None
    fde: float | None


@dataclass(frozen=True, slots=True)
class SampleView:
    """One row. `path` shows the waypoints of the last answer."""

    row_id: int
    sample_id: str | None
    why: str
    asked: str
    target: str | None
    answers: list[Answer]
    frames: list[str]
    frames_left_out: int
    path: Path | None


class _Choice(NamedTuple):
    why: str
    condition: str
    order: str
    rows: int


def sample_views(spec: RunSpec, checkpoints: Sequence[str], records: Records | None) -> tuple[list[SampleView], str]:
    """Rows worth a look, chosen by the last checkpoint that answered anything; and a note if images are lacking."""
    judged = _last_answered(checkpoints, records)
    if records is None or judged is None:
        return [], ""
    why = _chosen(records, judged)
    try:
        images, note = read_images(spec, why), ""
    except (ProctorError, OSError, ValueError) as error:
        images, note = {}, f"The images could not be read back from the source: {error}"
    views = []
    for row_id, rows in _rows(records, why).items():
        answers = [_answer(rows[name], _mark_columns(records)) for name in checkpoints if name in rows]
        views.append(_view(rows[judged], why[row_id], answers, images.get(row_id, ())))
    return views, note


def _rows(records: Records, row_ids: Collection[int]) -> dict[int, dict[str, dict[str, Any]]]:
    """Records of a few rows, by row id and checkpoint."""
    listed = ", ".join(str(int(row_id)) for row_id in row_ids)
    rows: dict[int, dict[str, dict[str, Any]]] = {row_id: {} for row_id in row_ids}
    for row in records.ask(f"select * from records where row_id in ({listed})"):  # noqa: S608 (numbers only)
        rows[row["row_id"]][row["checkpoint"]] = row
    return rows


def _last_answered(checkpoints: Sequence[str], records: Records | None) -> str | None:
    found = records.ask("select distinct checkpoint from records where answer is not null") if records else []
    answered = {row["checkpoint"] for row in found}
    return next((name for name in reversed(checkpoints) if name in answered), None)


def _chosen(records: Records, checkpoint: str) -> dict[int, str]:
    """Row ids, and why each was taken."""
    chosen: dict[int, str] = {}
    for choice in _choices(records, checkpoint):
        picked = f"checkpoint = ? and {choice.condition} order by {choice.order} limit ?"
        found = records.ask(f"select row_id from records where {picked}", [checkpoint, choice.rows + len(chosen)])  # noqa: S608 (no part comes from data)
        fresh = [row["row_id"] for row in found if row["row_id"] not in chosen]
        chosen |= dict.fromkeys(fresh[: min(choice.rows, MOST_SAMPLES - len(chosen))], choice.why)
    return dict(sorted(chosen.items()))


def _choices(records: Records, checkpoint: str) -> list[_Choice]:
    rest = _Choice("answered", "answer is not null", "row_id", MOST_SAMPLES)
    unparsed = _Choice("not parsed", "parse_error is not null", "row_id", 1)
    if {"exact", "ade", "fde"} <= records.types.keys():
        error = "greatest(ade, fde)"
        astray = f"{error} > {SAME_POINT_METRES}"
        sql = f"select coalesce(median({error}), 0) as metres from records where checkpoint = ? and {astray}"  # noqa: S608 (a constant)
        median = float(records.ask(sql, [checkpoint])[0]["metres"])
        return [
            _Choice("right", "exact", "row_id", 1),
            _Choice("right path, wrong otherwise", f"not exact and not {astray}", "row_id", 1),
            _Choice("typical path error", astray, f"abs({error} - {median}), row_id", 1),
            _Choice("largest path error", astray, f"{error} desc, row_id", 2),
            unparsed,
            rest,
        ]
    mark = next(iter(_mark_columns(records)), None)
    if mark is not None:
        name = mark.replace('"', '""')
        return [
            _Choice("right", f'"{name}"', "row_id", 2),
            _Choice("wrong", f'not "{name}"', "row_id", 3),
            unparsed,
            rest,
        ]
    return [rest]


def _mark_columns(records: Records) -> list[str]:
    return [name for name, kind in records.types.items() if kind == "BOOLEAN" and name not in _BASE]


def _view(shown: dict[str, Any], why: str, answers: list[Answer], images: Sequence[bytes]) -> SampleView:
    frames = [uri for image in images[:MOST_FRAMES] if (uri := data_uri(image)) is not None]
    return SampleView(
        row_id=shown["row_id"],
        sample_id=shown["sample_id"],
        why=why,
        asked=_asked(shown["prompt"]),
        target=_target_text(shown["target"]),
        answers=answers,
        frames=frames,
        frames_left_out=len(images) - len(frames),
        path=_path(shown),
    )


def _answer(row: dict[str, Any], marks: Sequence[str]) -> Answer:
    trouble = row["parse_error"] if row["error_kind"] is None else f"{row['error_kind']}: {row['error_message']}"
    marked = any(row[name] is not None for name in marks)
    wrong = [name.removesuffix("_correct").replace("_", " ") for name in marks if row[name] is False]
    return Answer(row["checkpoint"], row["answer"], trouble, marked, wrong, row.get("ade"), row.get("fde"))


def _path(row: dict[str, Any]) -> Path | None:
    said, truth = row.get("waypoints"), row.get("waypoints_target")
    return path(said or [], truth or []) if said or truth else None


def _asked(prompt: str | None) -> str:
    if prompt is None:
        return ""
    messages = msgspec.json.decode(prompt, type=Prompt)
    return "\n".join(part.text for message in messages for part in message.parts if isinstance(part, TextPart))


def _target_text(target: str | None) -> str | None:
    """A driving target in the words of an answer, so that both can be compared; any other as it is."""
    if target is None:
        return None
    value = json.loads(target)
    try:
        return str(answer_of(value))
    except ParseError:
        return value if isinstance(value, str) else target
