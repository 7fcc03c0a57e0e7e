"""Whether a run is good enough: held against limits, and against a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from proctor.paired.comparing import Wish, compare
from proctor.paired.limits import Checked, Limit, exact, held
from proctor.paired.measures import measures_of
from proctor.paired.model import Change, Comparison
from proctor.paired.sides import Given, Side
from proctor.paired.values import Tally, strict_share, summary_of, tally_of
from proctor.paired.workbench import Workbench, workbench
from proctor.rows import UserError
from proctor.tasks import Metric, Summary

PASSED, NOT_JUDGED, FAILED = 0, 3, 5
"""Exit codes, as those of ``proctor trace diff --fail-if``."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a run is held against.

    Attributes:
        limits: of metrics, and drops against the baseline.
        max_error_rate: largest share of the expected rows with an error; None is any.
        max_unanswered: most rows without a final record; None is any.
        by, cluster, strict: see `proctor.paired.comparing.Wish`.
        point: judge values as if they had no error.
    """

    limits: Sequence[Limit] = ()
    max_error_rate: float | None = None
    max_unanswered: int | None = 0
    by: Literal["row-id", "sample-id"] = "row-id"
    cluster: str | None = None
    strict: bool = False
    point: bool = False


def gate(run: Given, baseline: Given | None, rules: Rules) -> list[Checked]:
    """Holds every checkpoint of `run` against the rules.

    A baseline of one checkpoint is that of all; else each checkpoint has the one of the same name, and where there is
    none a drop cannot be judged.

    Raises:
        UserError: the rules do not fit each other or the task, or the runs cannot be compared.
    """
    drops = [limit for limit in rules.limits if limit.kind == "drop"]
    own = [limit for limit in rules.limits if limit.kind != "drop"]
    if drops and baseline is None:
        raise UserError("a drop needs something to drop from", where="--max-drop", fix="give --baseline RUN")
    if baseline is not None and not drops:
        raise UserError("a baseline without a limit", where="--baseline", fix="give --max-drop")
    if rules.cluster and (own or not drops):
        raise UserError("rows are clustered for --max-drop only", where="--cluster", fix="judge the others without it")
    found: list[Checked] = []
    for side in run.sides:
        found += _own(side, own, rules)
        if baseline is not None:
            found += _drops(side, baseline, drops, rules)
    return found


def exit_code(checked: Sequence[Checked]) -> int:
    """0 if all passed, 5 if one failed, else 3."""
    outcomes = {each.outcome for each in checked}
    return FAILED if "failed" in outcomes else NOT_JUDGED if "cannot be judged" in outcomes else PASSED


def _own(side: Side, limits: Sequence[Limit], rules: Rules) -> list[Checked]:
    """What can be said of a checkpoint by itself."""
    with workbench() as bench:
        types = bench.lay(side, "one")
        tally = tally_of(bench, side, "one")
        checked = _counts(side, tally, rules)
        if limits:
            metrics = _metrics(bench, side, types, rules)
            checked += [_of_metric(side, limit, metrics, rules) for limit in limits]
    return checked


def _counts(side: Side, tally: Tally, rules: Rules) -> list[Checked]:
    checked = []
    if rules.max_unanswered is not None:
        limit = f"unanswered rows <= {rules.max_unanswered:,}"
        checked.append(exact(side.label, limit, tally.unanswered, rules.max_unanswered))
    if rules.max_error_rate is not None:
        limit = f"error rate <= {rules.max_error_rate:g}"
        checked.append(exact(side.label, limit, tally.error_rate, rules.max_error_rate))
    if side.source is None and checked:
        why = "no source.json: how many rows there should be is not known"
        checked.append(Checked(side.label, "rows expected are known", "cannot be judged", why=why))
    if tally.odd:
        why = f"{tally.odd:,} records are there twice, or have neither an answer nor an error; resume the run"
        checked.append(Checked(side.label, "records are sound", "cannot be judged", tally.odd, why=why))
    return checked


def _metrics(bench: Workbench, side: Side, types: dict[str, str], rules: Rules) -> dict[str, Metric]:
    summary = summary_of(bench, side, "one")
    metrics = {metric.name: metric for metric in summary.metrics} if summary else {}
    if not rules.strict:
        return metrics
    summaries: list[Summary] = [summary] if summary else []
    measures, _ = measures_of(side.spec.task, types, summaries)
    for measure in measures:
        if measure.is_mark:
            metrics[measure.name] = strict_share(bench, side, "one", measure)
    return metrics


def _of_metric(side: Side, limit: Limit, metrics: dict[str, Metric], rules: Rules) -> Checked:
    metric = metrics.get(limit.metric or "")
    if metric is None:
        if not metrics:
            return Checked(side.label, str(limit), "cannot be judged", why="the run has no metrics: it never closed")
        known = ", ".join(metrics)
        raise UserError(f"the task has no metric {limit.metric!r}", where=f"--{limit.kind}", fix=f"one of {known}")
    flat = metric.value in (0.0, 1.0) and not metric.unit
    return held(side.label, limit, metric.value, metric.low, metric.high, metric.n, point=rules.point, flat=flat)


def _drops(side: Side, baseline: Given, limits: Sequence[Limit], rules: Rules) -> list[Checked]:
    before = baseline.sides if len(baseline.sides) == 1 else [
        each for each in baseline.sides if each.checkpoint == side.checkpoint
    ]  # fmt: skip
    if not before:
        why = f"the baseline has no checkpoint {side.checkpoint}"
        return [Checked(side.label, str(limit), "cannot be judged", why=why) for limit in limits]
    wish = Wish(rules.by, cluster=rules.cluster, strict=rules.strict, limit=0)
    (found,) = compare([before[0], side], wish)
    return [_of_drop(side, limit, found, rules) for limit in limits]


def _of_drop(side: Side, limit: Limit, found: Comparison, rules: Rules) -> Checked:
    change = found.change(limit.metric or found.headline)
    if change is None:
        known = ", ".join(each.measure.name for each in found.changes)
        what = f"no metric {limit.metric!r} that can be compared" if limit.metric else "the task has no headline"
        raise UserError(what, where="--max-drop", fix=f"METRIC=VALUE with one of {known}")
    named = Limit("drop", change.measure.name, limit.value)
    if change.measure.higher_is_better is None:
        raise UserError(
            f"nobody said whether more {change.measure.name} is better", where="--max-drop",
            fix="the task's summary says it with a metric of the same name",
        )  # fmt: skip
    if found.account.other_targets:
        why = f"{found.account.other_targets:,} rows have another target in the baseline"
        return Checked(side.label, str(named), "cannot be judged", n=change.n, why=why)
    value, low, high = _worsening(change)
    flat = change.worse == change.better == 0
    return held(side.label, named, value, low, high, change.n, point=rules.point, flat=flat)


def _worsening(change: Change) -> tuple[float | None, float | None, float | None]:
    """By how much a metric got worse, with its bounds; below zero it got better."""
    sign = -change.measure.sign
    value = None if change.difference is None else sign * change.difference + 0.0  # no minus before a zero
    if change.low is None or change.high is None:
        return value, None, None
    low, high = sorted((sign * change.low, sign * change.high))
    return value, low, high
