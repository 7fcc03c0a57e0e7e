"""The rows themselves: which got worse, and all that changed in one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb

from proctor.paired.model import SCORED, ChangedRow, Measure
from proctor.paired.workbench import Workbench
from proctor.rows import UserError
from proctor.storage.local import write_whole
from proctor.tasks.summaries import quoted

FORMATS = {".csv": "FORMAT csv, HEADER", ".parquet": "FORMAT parquet, COMPRESSION zstd"}
"""Formats of an export, by the suffix of its name."""

_WORSE = "(change < 0 or lost)"


def lay_changed(bench: Workbench, headline: Measure | None, place: int | None, *, by_sample: bool) -> None:
    """Makes the view ``judged`` of the table ``pairs``, and ``changed``: a line of it for each row whose headline score
    changed, or that only one side has scored.

    ``change`` is by how much (more is better; null where one side has no score), ``lost`` and ``gained`` whether only A
    or only B has a score.
    By sample id, a row that the other side does not even have is not among them: its source may never have had it.
    """
    sign = headline.sign if headline is not None else 1
    change = "null::double" if place is None else f"(b{place} - a{place}) * {sign}"
    both = "row_a is not null and row_b is not null" if by_sample else "true"
    lost, gained = (
        f"(fate_{side} = '{SCORED}' and fate_{other} <> '{SCORED}' and {both})"
        for side, other in (("a", "b"), ("b", "a"))
    )
    known = f"fate_a = '{SCORED}' and fate_b = '{SCORED}'"
    bench.connection.execute(
        f"create or replace view judged as select *, case when {known} then {change} end as change, {lost} as lost, "
        f"{gained} as gained from pairs"
    )
    bench.connection.execute(
        "create or replace view changed as select * from judged where change <> 0 or lost or gained"
    )


def count_worse(bench: Workbench) -> int:
    """How many rows got worse or lost their score."""
    (count,) = bench.one(f"select count(*) from changed where {_WORSE}")
    return int(count)


def regressions(bench: Workbench, views: tuple[str, str], limit: int) -> list[ChangedRow]:
    """At most `limit` rows that got worse, the largest change first; after them rows that lost their score."""
    bench.connection.execute(
        "create or replace temp table worst as select row_a, row_b, sample_id, change, fate_a, fate_b "
        f"from changed where {_WORSE} order by change nulls last, row_a, row_b limit {int(limit)}"
    )
    return [ChangedRow(*row) for row in bench.ask(f"{_with_answers('worst', views)} order by change nulls last, row_a")]


def export_changed(bench: Workbench, views: tuple[str, str], measures: Sequence[Measure], out: Path) -> int:
    """Writes every row of ``changed`` with both answers and every score on both sides, whole or not at all.

    Returns:
        How many rows.

    Raises:
        UserError: the name has no known suffix, or the file cannot be written.
    """
    form = FORMATS[_suffix(out)]
    scores = [
        f"w.{side}{place} as {quoted(f'{m.name}_{side}')}"
        for place, m in enumerate(measures)
        if m.form != "f1"
        for side in ("a", "b")
    ]
    sql = f"{_with_answers('changed', views, scores)} order by change nulls last, row_a, row_b"
    _copy(bench, sql, out, form)
    return int(bench.one("select count(*) from changed")[0])


def export_ids(bench: Workbench, out: Path, *, by_sample: bool) -> int:
    """Writes the ids of the rows that got worse or lost their score, one a line; row ids, or sample ids.

    Raises:
        UserError: the file cannot be written.
    """
    key = "sample_id" if by_sample else "row_a"
    sql = f"select {key} from changed where {_WORSE} order by change nulls last, row_a"
    form = "FORMAT csv, HEADER false"
    _copy(bench, sql, out, form)
    return count_worse(bench)


def check_export(out: Path | None) -> None:
    """Refuses a name that no export can have, before anything is worked out.

    Raises:
        UserError: the suffix is not known, or there is no such directory.
    """
    if out is not None:
        _suffix(out)


def _suffix(out: Path) -> str:
    if out.suffix not in FORMATS:
        raise UserError("no format is known by this name", where=str(out), fix=f"end it with {' or '.join(FORMATS)}")
    return out.suffix


def _with_answers(table: str, views: tuple[str, str], more: Sequence[str] = ()) -> str:
    columns = ", ".join(["w.row_a", "w.row_b", "w.sample_id", "w.change", "w.fate_a", "w.fate_b",
                         "coalesce(a.target, b.target) as target", "a.answer as answer_a", "b.answer as answer_b",
                         *more])  # fmt: skip
    return (
        f"select {columns} from {table} w left join {views[0]} a on w.row_a = a.row_id "
        f"left join {views[1]} b on w.row_b = b.row_id"
    )


def _copy(bench: Workbench, sql: str, out: Path, form: str) -> None:
    """Writes the rows of a query into a file, whole or not at all."""

    def write(draft: Path) -> None:
        name = str(draft).replace("'", "''")
        bench.connection.execute(f"copy ({sql}) to '{name}' ({form})")

    if not out.parent.is_dir():
        raise UserError("no such directory", where=str(out.parent), fix="make it, or choose another place")
    try:
        write_whole(out, write)
    except (OSError, duckdb.IOException) as error:
        raise UserError(f"cannot write: {error}", where=str(out)) from error
