"""Records of two sides, row beside row, as one table in DuckDB."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from proctor.paired.measures import ANSWERED, PARSE_FAILURES, columns_of
from proctor.paired.model import NO_RECORD, SCORED, Measure
from proctor.paired.workbench import STONE, Workbench
from proctor.rows import ErrorKind, UserError
from proctor.tasks.summaries import quoted

NOT_UNIQUE = "sample id not unique"
NO_SAMPLE_ID = "no sample id"
_KINDS = ", ".join(f"'{kind.value}'" for kind in ErrorKind)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Rows that belong together: those with the same value in a column of the records, or the same part of it.

    Attributes:
        column: the column.
        pattern: what of its text counts: its first group, or all that it matches; None is the whole value.
    """

    column: str
    pattern: str | None = None

    @classmethod
    def of(cls, text: str) -> Cluster:
        """``COLUMN`` or ``COLUMN~REGEX``.

        Raises:
            UserError: the pattern is no regular expression.
        """
        column, tilde, pattern = text.partition("~")
        if not tilde:
            return cls(column)
        try:
            re.compile(pattern)
        except re.error as error:
            raise UserError(f"not a regular expression: {error}", where=f"--cluster {text}") from error
        return cls(column, pattern)

    def sql(self) -> tuple[str, list[str]]:
        """The expression and its parameters."""
        cell = f"cast({quoted(self.column)} as varchar)"
        if self.pattern is None:
            return cell, []
        group = 1 if re.compile(self.pattern).groups else 0
        return f"nullif(regexp_extract({cell}, ?, {group}), '')", [self.pattern]


@dataclass(frozen=True, slots=True)
class Plan:
    """How sides are put beside each other.

    Attributes:
        by_sample: by sample id; else by row id.
        measures: the metrics to pair.
        headline: the one that says whether a row is scored; None: a row with a parsed answer is.
        cluster: which rows belong together; None: each is for itself.
        strict: whether a row without a score counts as wrong in the shares of the task's marks.
    """

    by_sample: bool
    measures: Sequence[Measure]
    headline: Measure | None
    cluster: Cluster | None = None
    strict: bool = False

    def filled(self, measure: Measure) -> bool:
        """Whether rows without a score count as wrong in this metric."""
        return self.strict and measure.is_mark


def lay_side(bench: Workbench, plan: Plan, view: str, table: str) -> None:
    """Makes `table` of the records in `view`: key, fate, cluster, and a number (labels for an F1) for each metric."""
    cluster, parameters = ("cast(null as varchar)", []) if plan.cluster is None else plan.cluster.sql()
    cells = [cell for place, measure in enumerate(plan.measures) for cell in _cells(plan, place, measure)]
    key = "sample_id" if plan.by_sample else "row_id"
    bench.connection.execute(
        f"create or replace table {table} as select {key} as k, row_id, sample_id, fate, {cluster} as cluster, "
        f"case when target is not null then hash(target) end as target, {', '.join(cells)} "
        f"from (select *, {_fate(plan)} as fate from {view})",
        parameters,
    )


def lay_pairs(bench: Workbench, plan: Plan, a: str, b: str, pairs: str = "pairs") -> None:
    """Makes the table `pairs` of two tables of `lay_side`: a line for each row that is on either side, none lost."""
    sides = (_keyed(a, a, b), _keyed(b, a, b)) if plan.by_sample else (f"select * from {a}", f"select * from {b}")
    columns = [cell for place, measure in enumerate(plan.measures) for cell in _paired(plan, place, measure)]
    bench.connection.execute(
        f"create or replace table {pairs} as select a.row_id as row_a, b.row_id as row_b, "
        f"coalesce(a.sample_id, b.sample_id) as sample_id, coalesce(a.fate, '{NO_RECORD}') as fate_a, "
        f"coalesce(b.fate, '{NO_RECORD}') as fate_b, coalesce(a.target <> b.target, false) as other_target, "
        f"{_cluster(plan)} as cluster, {', '.join(columns)} "
        f"from ({sides[0]}) a full outer join ({sides[1]}) b on a.k = b.k"
    )


def _cluster(plan: Plan) -> str:
    """The cluster of a row; one that has none is a cluster of its own."""
    if plan.cluster is None:
        return "cast(null as varchar)"
    alone = "'\x1frow ' || coalesce(a.row_id, -1) || ' ' || coalesce(b.row_id, -1)"
    return f"coalesce(a.cluster, b.cluster, {alone})"


def _fate(plan: Plan) -> str:
    kind = f"case when error_kind in ({_KINDS}) then error_kind else 'of no known kind' end"
    scored = "true" if plan.headline is None else f"({_number(plan.headline)}) is not null"
    return (
        "case when (answer is null) = (error_kind is null) then 'unsound' "
        f"when error_kind is not null then (case when {STONE} then 'unanswered ' else 'error ' end) || {kind} "
        f"when parse_error is not null then 'unparsed' when {scored} then '{SCORED}' else 'not scored' end"
    )


def _number(measure: Measure) -> str:
    """A metric's value of one row, before it is known whether the row is sound."""
    if measure == ANSWERED:
        return "case when answer is not null then 1.0::double else 0.0::double end"
    if measure == PARSE_FAILURES:
        return "case when answer is not null then (parse_error is not null)::int::double end"
    cell = quoted(measure.column)
    if measure.form == "share":
        return f"cast(cast({cell} as boolean) as int)::double"
    return f"case when isfinite(cast({cell} as double)) then cast({cell} as double) end"


def _cells(plan: Plan, place: int, measure: Measure) -> list[str]:
    if measure.form == "f1":
        said, truth = (quoted(name) for name in columns_of(measure))
        both = f"answer is not null and {said} is not null and {truth} is not null"
        return [
            f"case when {both} then cast({cell} as varchar) end as {kind}{place}"
            for kind, cell in (("p", said), ("t", truth))
        ]
    if measure in (ANSWERED, PARSE_FAILURES):
        return [f"{_number(measure)} as v{place}"]
    number = f"case when answer is not null and error_kind is null then {_number(measure)} end"
    if plan.filled(measure):
        number = f"coalesce({number}, case when fate <> 'not scored' then 0.0::double end)"
    return [f"{number} as v{place}"]


def _keyed(table: str, a: str, b: str) -> str:
    """A side by sample id: ids that either side has twice pair with nothing, and the fate says so."""
    twice = " union ".join(f"select k from {t} where k is not null group by k having count(*) > 1" for t in (a, b))
    return (
        f"select s.* replace (case when d.k is null then s.k end as k, case when s.k is null then '{NO_SAMPLE_ID}' "
        f"when d.k is not null then '{NOT_UNIQUE}' else s.fate end as fate) "
        f"from {table} s left join ({twice}) d on s.k = d.k"
    )


def _paired(plan: Plan, place: int, measure: Measure) -> list[str]:
    if measure.form == "f1":
        both = f"a.p{place} is not null and b.p{place} is not null and a.t{place} = b.t{place}"
        return [
            f"case when {both} then a.t{place} end as t{place}",
            f"case when {both} then a.p{place} end as a{place}",
            f"case when {both} then b.p{place} end as b{place}",
        ]
    cells = [f"a.v{place}", f"b.v{place}"]
    if plan.by_sample:  # a row that the other side's source may not even have
        cells = [f"case when a.k is not null and b.k is not null then {cell} end" for cell in cells]
    elif measure == ANSWERED or plan.filled(measure):
        here, there = (f"case when {side}.k is not null then 0.0::double end" for side in ("b", "a"))
        cells = [f"case when a.k is null then {here} else a.v{place} end",
                 f"case when b.k is null then {there} else b.v{place} end"]  # fmt: skip
    return [f"{cells[0]} as a{place}", f"{cells[1]} as b{place}"]
