"""Everything a report shows, gathered from a run directory before a line of HTML is written."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from proctor.audit.standing import Standing, read_standing
from proctor.results import Ledger, Reconciliation, RunDir
from proctor.rows import Event, UserError
from proctor.spec import RunSpec
from proctor.storage.connect import is_url
from proctor.tasks import Confusion, Metric, Summary
from proctor.view.audit_words import Headline, headline
from proctor.view.charts.curve import Curve, curves
from proctor.view.charts.heat import Heat, heat
from proctor.view.charts.timeline import Timeline, is_trouble, sweep_seconds, timeline
from proctor.view.faults import FaultKind, fault_kinds, unparsed
from proctor.view.formats import duration, moment, whole
from proctor.view.records import open_records
from proctor.view.samples import SampleView, sample_views
from proctor.view.verdict import Verdict, verdict

MOST_EVENTS = 40


@dataclass(frozen=True, slots=True)
class RunView:
    """A run as its report shows it.

    Attributes:
        facts: what ran, as (label, value).
        metrics: for each metric its values, in the order of `checkpoints`; None where a checkpoint lacks it.
        best: for each metric the place of the best value, None where there is nothing to compare.
        heats: confusion matrices of each checkpoint that has any.
        troubles: events that are faults, oldest first, with the seconds since the first event of the run.
        troubles_left_out: how many more of them there are in ``events.jsonl``.
        spec: the resolved spec as YAML, secrets masked.
        audit: the verdict of the audit that the run carries.
    """

    name: str
    verdict: Verdict
    facts: list[tuple[str, str]]
    checkpoints: list[str]
    ledgers: list[Ledger]
    metrics: dict[str, list[Metric | None]]
    best: dict[str, int | None]
    curves: list[Curve]
    heats: dict[str, list[Heat]]
    samples: list[SampleView]
    samples_note: str
    faults: list[FaultKind]
    unparsed: list[dict[str, Any]]
    timeline: Timeline | None
    troubles: list[tuple[float, Event]]
    troubles_left_out: int
    versions: dict[str, str]
    spec: str
    audit: Standing | None = None

    @property
    def rows(self) -> int | None:
        """Rows expected of each checkpoint, None when they differ or nobody counted yet."""
        counts = {ledger.expected for ledger in self.ledgers}
        return counts.pop() if len(counts) == 1 else None

    @property
    def audit_headline(self) -> Headline | None:
        """What the audit says, in a few words and in a sentence."""
        return None if self.audit is None else headline(self.audit.kind, self.audit.sentence)

    @property
    def unaudited(self) -> list[str]:
        """Checkpoints that the audit says nothing about."""
        return [name for name in self.checkpoints if self.audit is not None and name != self.audit.checkpoint]

    @property
    def asked(self) -> str | None:
        """The question, when all samples were asked the same."""
        questions = {sample.asked for sample in self.samples}
        return questions.pop() if len(questions) == 1 else None


def gather(run: RunDir, *, rows: bool = True) -> RunView:
    """Reads `run`; what is not there yet is left out.

    Args:
        run: where.
        rows: read records and images of the rows, too; without them there are no samples and no examples of faults.

    Raises:
        UserError: there is no run, or its spec is not understood.
    """
    spec = run.spec()
    if spec is None:
        raise UserError("no run here (no spec.yaml)", where=run.location)
    account = run.read("reconciliation")
    ledgers = Reconciliation.from_json(account).ledgers if account else []
    exit_code = account.get("exit_code") if account else None
    summaries = _summaries(run)
    checkpoints = [checkpoint.name for checkpoint in spec.engine.checkpoints]
    metrics = _metrics(summaries, checkpoints)
    events = run.events()
    troubles = _troubles(events)
    with open_records(run) if rows else nullcontext() as records:
        samples, note = sample_views(spec, checkpoints, records)
        return RunView(
            name=_name(run.location),
            verdict=verdict(ledgers, exit_code, spec.limits.max_error_rate),
            facts=_facts(spec, _rows(run, ledgers), events),
            checkpoints=checkpoints,
            ledgers=ledgers,
            metrics=metrics,
            best={name: _best(line) for name, line in metrics.items()},
            curves=curves({name: summaries[name] for name in checkpoints if name in summaries}),
            heats=_heats(summaries, checkpoints),
            samples=samples,
            samples_note=note,
            faults=fault_kinds(ledgers, records),
            unparsed=unparsed(records),
            timeline=timeline(events),
            troubles=troubles[:MOST_EVENTS],
            troubles_left_out=max(0, len(troubles) - MOST_EVENTS),
            versions=run.read("versions") or {},
            spec=_yaml(spec, run),
            audit=None if spec.audit is None else read_standing(run.folder),
        )


def _name(location: str) -> str:
    """The last two parts of a path or URL."""
    whole_path = location if is_url(location) else str(Path(location).resolve())
    return "/".join(whole_path.split("/")[-2:])


def _troubles(events: list[Event]) -> list[tuple[float, Event]]:
    begin = min((event.time for event in events), default=0.0)
    return [(event.time - begin, event) for event in events if is_trouble(event.kind)]


def _summaries(run: RunDir) -> dict[str, Summary]:
    return msgspec.convert(run.read("metrics") or {}, dict[str, Summary])


def _metrics(summaries: dict[str, Summary], checkpoints: list[str]) -> dict[str, list[Metric | None]]:
    by_name = [{metric.name: metric for metric in summaries[c].metrics} if c in summaries else {} for c in checkpoints]
    names = dict.fromkeys(name for metrics in by_name for name in metrics)
    return {name: [metrics.get(name) for metrics in by_name] for name in names}


def _best(line: list[Metric | None]) -> int | None:
    """Place of the best value, None unless one stands out among several."""
    values = {place: m.value for place, m in enumerate(line) if m is not None and m.value is not None}
    first = next((metric for metric in line if metric is not None), None)
    if first is None or len(values) < 2:
        return None
    pick = max if first.higher_is_better else min
    best = pick(values.values())
    places = [place for place, value in values.items() if value == best]
    return places[0] if len(places) == 1 else None


def _heats(summaries: dict[str, Summary], checkpoints: list[str]) -> dict[str, list[Heat]]:
    return {
        name: [heat(confusion) for confusion in summaries[name].confusions]
        for name in checkpoints
        if name in summaries and any(_has_counts(confusion) for confusion in summaries[name].confusions)
    }


def _has_counts(confusion: Confusion) -> bool:
    return any(map(any, confusion.counts))


def _facts(spec: RunSpec, rows: str, events: list[Event]) -> list[tuple[str, str]]:
    replicas = f" \u00d7 {spec.engine.replicas}" if spec.engine.replicas > 1 else ""
    facts = [
        ("Task", spec.task.kind),
        ("Engine", f"{spec.engine.kind}{replicas}"),
        ("Checkpoints", whole(len(spec.engine.checkpoints))),
        *[("Rows", rows) for _ in range(1) if rows],
        ("Source", f"{spec.source.kind}, {spec.source.path}"),
    ]
    if events:
        facts.append(("Began", moment(min(event.time for event in events))))
    if worked := sweep_seconds(events):
        facts.append(("Sweeps took", duration(worked)))
    return facts


def _rows(run: RunDir, ledgers: list[Ledger]) -> str:
    """How many rows the run has, and of how many if it keeps to a list; empty before anybody counted."""
    if not ledgers:
        return ""
    with suppress(UserError):  # damaged: then it is not said
        if (facts := run.source()) is not None and facts.only is not None:
            return f"{whole(ledgers[0].expected)} of {whole(facts.rows)}, those of a list"
    return whole(ledgers[0].expected)


def _yaml(spec: RunSpec, run: RunDir) -> str:
    return run.spec_text() or yaml.safe_dump(spec.model_dump(mode="json"))
