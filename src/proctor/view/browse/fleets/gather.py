"""Everything that the page of a fleet shows, gathered before a line of HTML is written. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from proctor.fleet import words
from proctor.fleet.cells import Cell, Unit
from proctor.fleet.naming import by_number, cell_name
from proctor.fleet.standing import DONE, GIVEN_UP, HELD, SUBMITTED, UNREADABLE, WAITING, Standing
from proctor.rows import Event
from proctor.tasks import Metric, Summary
from proctor.view.browse.fleets.attempts import Attempt, attempts_of, queue_of
from proctor.view.browse.fleets.cells import NOT_READ
from proctor.view.browse.fleets.opening import OpenFleet
from proctor.view.browse.states import RUNNING, tone_of
from proctor.view.charts.curve import Curve, curves
from proctor.view.charts.lanes import Lanes, Span, lanes_chart
from proctor.view.formats import whole
from proctor.view.verdict import Tone, Verdict

MOST_EVENTS, MOST_ATTEMPTS, MOST_LANES = 200, 500, 40
_TONES: dict[str, Tone] = {GIVEN_UP: "bad", UNREADABLE: "bad", HELD: "warn"}
_LONE = ""
"""The kind of all cells of a fleet in which they differ in their checkpoint only."""


@dataclass(frozen=True, slots=True)
class CellLine:
    """A cell as the page shows it.

    Attributes:
        word: its state.
        kind: what it asks: its task and choice, as in its name; empty where all cells ask the same.
    """

    standing: Standing
    word: str
    tone: Tone
    kind: str

    @property
    def begun(self) -> bool:
        """Whether there may be a run to look at."""
        state = self.standing.state
        if state in (GIVEN_UP, HELD):
            return self.standing.expected is not None
        return state not in (WAITING, SUBMITTED, NOT_READ)


class Queued(NamedTuple):
    """A unit that waits for its GPUs."""

    unit: str
    priority: int
    gpus: float
    tries: int
    why: str


@dataclass(frozen=True, slots=True)
class FleetPage:
    """A fleet as its page shows it.

    Attributes:
        kinds: columns of the matrix; one that is empty where cells differ in their checkpoint only.
        checkpoints: rows of it.
        matrix: cells by checkpoint and kind.
        lines: all cells, by kind and then by checkpoint.
        charts: learning curves, one for each task and unit of its metric, as (caption, chart).
        queue: units that wait, in the order in which they start.
        attempts: the last ones, newest first; `attempts_left_out` are older.
        lanes: the same over time.
        events: the last ones, oldest first.
        refused: checkpoints that came and could not be taken, with the reason.
    """

    name: str
    verdict: Verdict
    facts: list[tuple[str, str]]
    kinds: list[str]
    checkpoints: list[str]
    matrix: Mapping[tuple[str, str], CellLine]
    lines: list[CellLine]
    charts: list[tuple[str, Curve]]
    queue: list[Queued]
    attempts: list[Attempt]
    attempts_left_out: int
    lanes: Lanes | None
    events: list[Event]
    events_left_out: int
    refused: list[str]
    notes: list[tuple[str, str]]
    problem: str
    not_read: int


def gather(seen: OpenFleet, standings: Sequence[Standing], now: float) -> FleetPage:
    """What the page shows.

    Args:
        seen: the fleet.
        standings: how its cells stand.
        now: seconds since the epoch.
    """
    keys = list(seen.fleet.spec.matrix.set)
    lines = [_line(one, keys) for one in standings]
    kinds = list(dict.fromkeys(line.kind for line in lines))
    order = {name: place for place, name in enumerate(_ordered([one.cell.checkpoint for one in standings]))}
    lines.sort(key=lambda line: (kinds.index(line.kind), order[line.standing.cell.checkpoint]))
    attempts = attempts_of(seen.events)
    return FleetPage(
        name=seen.place.location.rstrip("/").rpartition("/")[2],
        verdict=_verdict(lines, watched=seen.watched),
        facts=_facts(seen, standings),
        kinds=kinds,
        checkpoints=list(order),
        matrix={(line.standing.cell.checkpoint, line.kind): line for line in lines},
        lines=lines,
        charts=_charts(lines, list(order)),
        queue=_queue(seen.units, standings),
        attempts=attempts[::-1][:MOST_ATTEMPTS],
        attempts_left_out=max(0, len(attempts) - MOST_ATTEMPTS),
        lanes=_lanes(attempts, now if seen.watched else max((event.time for event in seen.events), default=now)),
        events=seen.events[-MOST_EVENTS:],
        events_left_out=max(0, len(seen.events) - MOST_EVENTS),
        refused=[event.message for event in seen.events if event.kind == words.CHECKPOINT_REFUSED],
        notes=_notes(lines),
        problem=seen.problem,
        not_read=sum(line.word == NOT_READ for line in lines),
    )


def _line(one: Standing, keys: Sequence[str]) -> CellLine:
    word = one.state.replace("_", " ")
    return CellLine(one, word, _TONES.get(word) or tone_of(word), _kind(one.cell, keys))


def _kind(cell: Cell, keys: Sequence[str]) -> str:
    return cell_name("", cell.task, cell.choice, keys).removeprefix("--") if cell.task or cell.choice else _LONE


def _ordered(checkpoints: Sequence[str]) -> list[str]:
    """Each once: by the numbers in their names if all have some, else as the fleet came to know them."""
    names = list(dict.fromkeys(checkpoints))
    numbered = all(any(character.isdecimal() for character in name) for name in names)
    return sorted(names, key=by_number) if numbered else names


def _verdict(lines: Sequence[CellLine], *, watched: bool) -> Verdict:
    """How far the fleet is, in a line."""
    counts = Counter(line.word for line in lines)
    done = sum(line.standing.state in DONE for line in lines)
    said = ", ".join(f"{whole(count)} {word}" for word, count in counts.most_common())
    if not lines:
        return Verdict("open", "No cells yet", "No checkpoint has been found.", None)
    if done == len(lines):
        return Verdict("good" if len(counts) == 1 else "warn", "Every cell is done", f"{said}.", None)
    tone: Tone = "bad" if any(line.tone == "bad" for line in lines) else "open"
    watcher = "a watcher is at work" if watched else "nobody watches it"
    return Verdict(tone, f"{whole(done)} of {whole(len(lines))} cells are done", f"{said}; {watcher}.", None)


def _facts(seen: OpenFleet, standings: Sequence[Standing]) -> list[tuple[str, str]]:
    spec = seen.fleet.spec
    gpus = spec.cluster.gpus
    return [
        ("Way", spec.way),
        ("Cells", whole(len(standings))),
        ("Units", whole(len(seen.units))),
        ("GPUs", "all of the cluster" if gpus is None else f"{gpus:g}"),
        ("At work", whole(sum(one.state == RUNNING for one in standings))),
        ("GPU hours", f"{sum(one.gpu_hours for one in standings):,.2f}"),
        ("Watcher", "at work" if seen.watched else "none"),
    ]


def _charts(lines: Sequence[CellLine], checkpoints: Sequence[str]) -> list[tuple[str, Curve]]:
    """A chart for each task, with a line for each of its choices."""
    by_task: dict[str, dict[str, dict[str, Metric]]] = {}
    for line in lines:
        one = line.standing
        if one.score is not None:
            label = line.kind.removeprefix(one.cell.task).removeprefix("--") or one.score.name
            by_task.setdefault(one.cell.task, {}).setdefault(label, {})[one.cell.checkpoint] = one.score
    found: list[tuple[str, Curve]] = []
    for task, labels in by_task.items():
        metric = next(iter(next(iter(labels.values())).values())).name
        caption = f"{task}: {metric}" if task else metric
        found += [(caption, chart) for chart in curves(_summaries(labels, checkpoints))]
    return found


def _summaries(labels: Mapping[str, Mapping[str, Metric]], checkpoints: Sequence[str]) -> dict[str, Summary]:
    first = next(iter(labels))
    return {
        name: Summary(first, tuple(replace(by[name], name=label) for label, by in labels.items() if name in by))
        for name in checkpoints
        if any(name in by for by in labels.values())
    }


def _queue(units: Sequence[Unit], standings: Sequence[Standing]) -> list[Queued]:
    waiting = {one.unit: one for one in standings if one.state == WAITING}
    by_name = {unit.name: unit for unit in units if unit.name in waiting}
    order = queue_of([(name, unit.priority) for name, unit in by_name.items()])
    return [
        Queued(name, by_name[name].priority, by_name[name].gpus, waiting[name].attempts, waiting[name].note)
        for name in order
    ]


def _lanes(attempts: Sequence[Attempt], now: float) -> Lanes | None:
    """The last tries over time, a lane for each unit: those that were tried last."""
    last = attempts[-MOST_ATTEMPTS:]  # all tries of one unit that fails at once would make a page of megabytes
    units = set(list(dict.fromkeys(one.unit for one in reversed(last)))[:MOST_LANES])
    spans = [span for one in last if one.unit in units for span in _spans(one, now)]
    return lanes_chart(spans)


def _spans(one: Attempt, now: float) -> list[Span]:
    """The time that a try waited for its start, and the time that it ran."""
    told = f"{one.unit}, attempt {one.number}: "
    end = one.ended if one.ended is not None else now
    spans = []
    if one.submitted is not None:
        began = one.started if one.started is not None else end
        spans.append(Span(one.unit, one.submitted, began, "wait", told + "waited for its start"))
    if one.started is not None:
        tone = {"complete": "good", "ended": "bad", "gone": "warn"}.get(one.fate, "open")
        spans.append(Span(one.unit, one.started, end, tone, told + " ".join(filter(None, (one.fate, one.reason)))))
    return spans


def _notes(lines: Sequence[CellLine]) -> list[tuple[str, str]]:
    """What else there is to say, by cell; what the cells of a unit share is said once."""
    said: dict[tuple[str, str], str] = {}
    for line in lines:
        one = line.standing
        if one.note:
            said.setdefault((one.unit, one.note), one.cell.name)
    return [(name, note) for (_, note), name in said.items()]
