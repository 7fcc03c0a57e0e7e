"""Every row of two to four sides once, with what became of it from the first side to each other, in DuckDB.

The table ``board``: ``key`` (text), ``row`` (where it stands among rows of its rank), ``rank`` (see `RANKS`), ``size``
(the largest change first), ``absent`` (a side has no record of it), ``sample_id``; and for each side its row id
``r0`` .. and fate ``f0`` ..; for each but the first the rank ``k1`` .. and by how much the score changed ``c1`` ...
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proctor.paired.model import NO_RECORD
from proctor.paired.pairing import NO_SAMPLE_ID, NOT_UNIQUE
from proctor.paired.workbench import Workbench

RANKS = ("regression", "improvement", "different", "missing", "same")
"""What a row is: it got worse on a side, or lost its score there; else it got better, or gained a score; else it was
answered otherwise, or ended otherwise; else a side does not have it; else nothing changed."""
NOT_ASKED = "not asked"
"""Fate of a row on a side whose run keeps to a list of rows that does not have it."""
_LAST = "1e300"


def lay_one(bench: Workbench, place: int, *, by_sample: bool) -> None:
    """Makes the table ``one{place}`` of the view ``judged`` that a comparison of the first side with another left.

    Args:
        bench: with ``judged``, and with views ``rec0`` and ``rec{place}`` of the records of the two sides.
        place: of the other side, from 1.
        by_sample: whether rows were paired by sample id.
    """
    alone = f"fate_b in ('{NOT_UNIQUE}', '{NO_SAMPLE_ID}') or sample_id is null"
    key = "coalesce(row_a, row_b)::varchar"
    if by_sample:
        key = (
            f"case when row_a is not null then row_a::varchar when {alone} then 'side {place}: ' || row_b "
            "else 'sample ' || sample_id end"
        )
    said = "select row_id, hash(answer) as h from rec"
    bench.connection.execute(
        f"create table one{place} as select {key} as key, j.row_a, j.row_b, j.sample_id, fate_a, fate_b, change, "
        "case when change < 0 or lost then 0 when change > 0 or gained then 1 "
        "when row_a is null or row_b is null then 3 "
        "when fate_a <> fate_b or a.h is distinct from b.h or other_target then 2 else 4 end as kind "
        f"from judged j left join ({said}0) a on j.row_a = a.row_id left join ({said}{place}) b on j.row_b = b.row_id"
    )


def lay_board(bench: Workbench, others: int) -> None:
    """Makes the table ``board`` of the tables ``one1`` .. of `others` sides, which are gone afterwards."""
    places = range(1, others + 1)
    joined = "one1" + "".join(f" full outer join one{at} using (key)" for at in places[1:])
    first = {name: _first(f"one{at}.{name}" for at in places) for name in ("row_a", "sample_id", "fate_a")}
    cells = [
        f"{first['row_a']} as r0",
        f"coalesce({first['fate_a']}, '{NO_RECORD}') as f0",
        f"{first['sample_id']} as sample_id",
        *(f"one{at}.row_b as r{at}" for at in places),
        *(f"coalesce(one{at}.fate_b, '{NOT_ASKED}') as f{at}" for at in places),
        *(f"coalesce(one{at}.kind, 4) as k{at}" for at in places),
        *(f"one{at}.change as c{at}" for at in places),
    ]
    rows, fates = _listed("r", range(others + 1)), [f"f{at}" for at in range(others + 1)]
    absent = " or ".join(f"{fate} = '{NO_RECORD}'" for fate in fates)
    bench.connection.execute(
        f"create table board as select *, case rank when 0 then {_worst(places)} when 1 then {_best(places)} else 0 "
        f"end as size from (select key, least({_listed('k', places)}) as rank, coalesce({rows}, -1) as row, "
        f"({absent}) as absent, * exclude (key) from (select key, {', '.join(cells)} from {joined}))"
    )
    for at in places:
        bench.connection.execute(f"drop table one{at}")


def _worst(places: Sequence[int]) -> str:
    """The largest change for the worse first, lost scores after them."""
    changes = ", ".join(f"case when k{at} = 0 then c{at} end" for at in places)
    return f"coalesce(least({changes}, null), {_LAST})"


def _best(places: Sequence[int]) -> str:
    changes = ", ".join(f"case when k{at} = 1 then -c{at} end" for at in places)
    return f"coalesce(least({changes}, null), {_LAST})"


def _listed(letter: str, places: Sequence[int]) -> str:
    return ", ".join(f"{letter}{at}" for at in places)


def _first(cells: Iterable[str]) -> str:
    return f"coalesce({', '.join([*cells, 'null'])})"
