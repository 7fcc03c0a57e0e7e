"""Compares checkpoints row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from proctor.paired.account import account_of
from proctor.paired.f1 import f1_change
from proctor.paired.measures import columns_of, measures_of
from proctor.paired.model import AddedUp, Change, Comparison, Measure
from proctor.paired.pairing import Cluster, Plan, lay_pairs, lay_side
from proctor.paired.rows import check_export, count_worse, export_changed, export_ids, lay_changed, regressions
from proctor.paired.shares import mean_change
from proctor.paired.sides import Side, narrowed, same_data
from proctor.paired.workbench import Workbench, told_of, workbench
from proctor.rows import UserError
from proctor.spec.compare import differences
from proctor.spec.task import PythonTaskSpec


@dataclass(frozen=True, slots=True)
class Wish:
    """How to compare.

    Attributes:
        by: by row id, which needs the same source on both sides, or by the user's own sample id.
        metric: the metric that the verdict and the regressions are about; None is the task's headline.
        cluster: ``COLUMN`` or ``COLUMN~REGEX``: rows with the same value there are one unit of the intervals.
        strict: rows without a score count as wrong in the task's shares.
        limit: regressions to list.
        export, ids: files to write, for the last of several sides each in turn; None writes none.
    """

    by: Literal["row-id", "sample-id"] = "row-id"
    metric: str | None = None
    cluster: str | None = None
    strict: bool = False
    limit: int = 20
    export: Path | None = None
    ids: Path | None = None


def compare(sides: Sequence[Side], wish: Wish) -> list[Comparison]:
    """Compares each later side with the first.

    Raises:
        UserError: the sides do not belong to the same source or task, or their records cannot be read.
        OSError: storage failed.
    """
    check_export(wish.export)
    if len(sides) > 2 and (wish.export or wish.ids):
        raise UserError("files are written for two sides only", where="--export, --ids", fix="compare them one by one")
    first, *others = sides
    for other in others:
        check_alike(first, other, wish)
    with workbench() as bench:
        return [compared(bench, first, other, wish) for other in others]


def check_alike(a: Side, b: Side, wish: Wish) -> None:
    """Whether two sides can be put beside each other.

    Raises:
        UserError: they do not belong to the same source or task.
    """
    both = f"{a.label} and {b.label}"
    kinds = [side.spec.task.kind for side in (a, b)]
    if kinds[0] != kinds[1]:
        raise UserError(f"marked by different tasks: {kinds[0]} and {kinds[1]}", where=both)
    if wish.by == "sample-id" or a.run.location == b.run.location:
        return
    fix = "--by sample-id pairs rows by their own ids"
    unknown = [side for side in (a, b) if side.source is None]
    if unknown:
        what = "no source.json: nobody can say whether its rows are the same as those of the other side"
        raise UserError(what, where=unknown[0].run.location, fix=fix)
    if not same_data(a, b):
        raise UserError("not the same source: their fingerprints differ", where=both, fix=fix)


def compared(bench: Workbench, a: Side, b: Side, wish: Wish) -> Comparison:
    """Compares two sides that `check_alike` lets pass; afterwards `bench` has their rows as ``judged`` (see
    `proctor.paired.rows.lay_changed`).

    Raises:
        UserError: the records cannot be read, or there is no such metric or cluster.
    """
    for view in ("one", "other"):
        bench.clear(view)
    a, b, told = narrowed(a, b) if wish.by == "row-id" else (a, b, [])
    types = [bench.lay(side, view, side.only if told else None) for side, view in ((a, "one"), (b, "other"))]
    plan, headline = _plan(a, b, types, wish)
    for side, view in ((a, "one"), (b, "other")):
        with told_of(side):
            lay_side(bench, plan, view, f"side_{view}")
    lay_pairs(bench, plan, "side_one", "side_other")
    place = None if plan.headline is None else plan.measures.index(plan.headline)
    lay_changed(bench, plan.headline, place, by_sample=plan.by_sample)
    views = ("one", "other")
    if wish.export is not None:
        export_changed(bench, views, plan.measures, wish.export)
    if wish.ids is not None:
        export_ids(bench, wish.ids, by_sample=plan.by_sample)
    account = account_of(bench, a, b, views, by_sample=plan.by_sample)
    changes = [_change(bench, plan, place, measure) for place, measure in enumerate(plan.measures)]
    return Comparison(
        a=a.label,
        b=b.label,
        paired_by=wish.by.replace("-", " "),
        headline=headline,
        account=account,
        changes=sorted(changes, key=lambda change: change.measure.name != headline),
        added_up=_added_up(a, b, plan.measures),
        spec_changes=_spec_changes(a, b),
        regressions=regressions(bench, views, wish.limit),
        regressed=count_worse(bench),
        strict=wish.strict,
        remarks=[*told, *(text for side in (a, b) for text in _remarks(side))],
    )


def _plan(a: Side, b: Side, types: Sequence[dict[str, str]], wish: Wish) -> tuple[Plan, str | None]:
    shared = {name: kind for name, kind in types[0].items() if name in types[1]}
    python = isinstance(a.spec.task, PythonTaskSpec)
    summaries = [summary for side in (b, a) if python and (summary := side.stored_summary()) is not None]
    measures, headline = measures_of(a.spec.task, shared, summaries)
    for side, columns in zip((a, b), types, strict=True):
        lacking = [name for measure in measures for name in columns_of(measure) if name not in columns]
        if lacking:
            what = f"the records lack the columns {', '.join(dict.fromkeys(lacking))}"
            raise UserError(what, where=side.where, fix="resume the run, or compare runs of the same task")
    if wish.metric is not None:
        headline = _named(wish.metric, measures)
    cluster = None if wish.cluster is None else Cluster.of(wish.cluster)
    if cluster is not None and cluster.column not in shared:
        raise UserError(
            f"no column {cluster.column!r} in the records", where="--cluster", fix=f"one of {', '.join(shared)}"
        )
    chosen = next((measure for measure in measures if measure.name == headline), None)
    return Plan(wish.by == "sample-id", measures, chosen, cluster, wish.strict), headline


def _named(name: str, measures: Sequence[Measure]) -> str:
    known = [measure.name for measure in measures if measure.form != "f1"]
    if name not in known:
        raise UserError(
            f"no metric {name!r} that rows have one by one", where="--metric", fix=f"one of {', '.join(known)}"
        )
    return name


def _change(bench: Workbench, plan: Plan, place: int, measure: Measure) -> Change:
    change = f1_change if measure.form == "f1" else mean_change
    return change(bench, measure, place, clustered=plan.cluster is not None)


def _added_up(a: Side, b: Side, measures: Sequence[Measure]) -> list[AddedUp]:
    """Metrics of a user's own summary that no column gives."""
    if not isinstance(a.spec.task, PythonTaskSpec):
        return []
    paired = {measure.name for measure in measures}
    values = [{m.name: m.value for m in s.metrics} if (s := side.stored_summary()) else {} for side in (a, b)]
    names = dict.fromkeys(name for side in values for name in side if name not in paired)
    return [AddedUp(name, values[0].get(name), values[1].get(name)) for name in names]


def _spec_changes(a: Side, b: Side) -> list[str]:
    """What else differs between the runs than the checkpoints."""
    if a.run.location == b.run.location:
        return []
    found = [str(d) for d in differences(a.spec, b.spec) if not d.key.startswith("engine.checkpoints")]
    if a.source == b.source or same_data(a, b):
        return found
    return [*found, f"source: {a.source} -> {b.source}"]


def _remarks(side: Side) -> list[str]:
    if side.run.live:
        return [f"{side.label}: the run is still under way; its rows are compared as they are now"]
    if side.run.read("reconciliation") is None:
        return [f"{side.label}: the run was cut off and never closed; what it has not answered has no record"]
    return []
