"""Errors by kind and answers that could not be parsed, each with a few examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proctor.results import Ledger
from proctor.rows import ErrorKind
from proctor.view.records import Records

EXAMPLES = 5

_EXAMPLES_SQL = """
select * from (
    select error_kind, row_id, min(sample_id) as sample_id, min(error_message) as message,
           list(distinct checkpoint order by checkpoint) as checkpoints,
           row_number() over (partition by error_kind order by row_id) as place
    from records where error_kind is not null group by error_kind, row_id
) where place <= ? order by error_kind, place
"""

_UNPARSED_SQL = """
select parse_error as message, count(*) as rows, arg_min(answer, row_id) as answer, min(row_id) as row_id,
       arg_min(sample_id, row_id) as sample_id, arg_min(checkpoint, row_id) as checkpoint
from records where parse_error is not null
group by parse_error order by rows desc, parse_error limit ?
"""


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One kind of error over the whole run.

    Attributes:
        final: whether it was the row's own fault; None for a kind that this version does not know.
        counts: rows by checkpoint, in the order of the checkpoints.
        examples: rows with ``row_id``, ``sample_id``, ``message``, ``checkpoints``.
    """

    kind: str
    final: bool | None
    counts: list[int]
    examples: list[dict[str, Any]]

    @property
    def total(self) -> int:
        """Records of this kind."""
        return sum(self.counts)


def fault_kinds(ledgers: Sequence[Ledger], records: Records | None) -> list[FaultKind]:
    """All kinds of the ledgers, most frequent first."""
    by_checkpoint = [Counter(ledger.errors) + Counter(ledger.unanswered) for ledger in ledgers]
    rows = records.ask(_EXAMPLES_SQL, [EXAMPLES]) if records else []
    found = [
        FaultKind(
            kind=kind,
            final=_is_final(kind),
            counts=[counter[kind] for counter in by_checkpoint],
            examples=[row for row in rows if row["error_kind"] == kind],
        )
        for kind in {kind for counter in by_checkpoint for kind in counter}
    ]
    return sorted(found, key=lambda fault: (-fault.total, fault.kind))


def unparsed(records: Records | None) -> list[dict[str, Any]]:
    """The most frequent reasons why answers could not be parsed, each with its first answer."""
    return records.ask(_UNPARSED_SQL, [EXAMPLES]) if records else []


def _is_final(kind: str) -> bool | None:
    try:
        return ErrorKind(kind).final
    except ValueError:
        return None
