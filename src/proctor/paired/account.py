"""Every row of both sides, by what became of it there."""

from __future__ import annotations

from proctor.paired.model import Account, Standing
from proctor.paired.sides import Side
from proctor.paired.workbench import Workbench


def account_of(bench: Workbench, a: Side, b: Side, views: tuple[str, str], *, by_sample: bool) -> Account:
    """Counts the table ``pairs``."""
    rows = bench.ask("select fate_a, fate_b, count(*) as n from pairs group by all order by n desc, fate_a, fate_b")
    (other,) = bench.one("select count(*) filter (other_target) from pairs")
    expected = (a.expected, b.expected)
    seen = sum(row[2] for row in rows)
    known = max((rows_ for rows_ in expected if rows_ is not None), default=0)
    return Account(
        expected=expected,
        rows=[Standing(*row) for row in rows],
        nowhere=0 if by_sample else max(0, known - seen),
        duplicates=(bench.duplicates[views[0]], bench.duplicates[views[1]]),
        other_targets=other,
    )
