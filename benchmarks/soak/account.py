"""What became of every row, from the result files and the truth alone, whatever the run says of itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.soak.data import Truth

_DEATHS = frozenset({"infer.crashed", "infer.stalled"})
"""What a death that the chaos brings about looks like."""
COLUMNS = ["row_id", "answer", "error_kind", "error_message", "sweep", "attempts"]


class Finding(NamedTuple):
    """A row that did not end as it must."""

    row: int
    expected: str
    got: str
    record: dict[str, Any]


@dataclass(slots=True)
class Account:
    """The ledger, counted anew, and every row that is not as it must be.

    Attributes:
        expected: rows of the source.
        answered: rows with an answer.
        errors: rows with a final error, by kind.
        unanswered: rows with a tombstone, by kind.
        missing: rows without any record.
        duplicate: records beyond the first of a row.
        unexpected: records of rows that the source does not have.
        unreadable: names of parts that cannot be read.
        findings: rows with another end than the planted one; an innocent row's end is its right answer.
        other_kind: rows that break their engine and were convicted for a death that was the chaos's. Not a finding.
    """

    expected: int
    answered: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    unanswered: Counter[str] = field(default_factory=Counter)
    missing: int = 0
    duplicate: int = 0
    unexpected: int = 0
    unreadable: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    other_kind: list[Finding] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether every row has exactly one record, and the right one."""
        odd = self.unanswered or self.missing or self.duplicate or self.unexpected or self.unreadable or self.findings
        return not odd

    def ledger(self) -> dict[str, Any]:
        """The counts, as the run's own ``reconciliation.json`` has them."""
        return {
            "expected": self.expected,
            "answered": self.answered,
            "errors": dict(sorted(self.errors.items())),
            "unanswered": dict(sorted(self.unanswered.items())),
            "missing": self.missing,
            "duplicate": self.duplicate,
            "unexpected": self.unexpected,
        }


def account(parts: Iterable[Path], truth: Mapping[int, Truth]) -> Account:
    """Reads the records in `parts` and holds them against the truth."""
    found = Account(len(truth))
    seen: set[int] = set()
    for part in sorted(parts):
        try:
            records = pq.ParquetFile(part).read(columns=COLUMNS).to_pylist()
        except (OSError, pa.ArrowInvalid):
            found.unreadable.append(part.name)
            continue
        tombstone = ".tombstone" in part.name
        for record in records:
            _enter(found, seen, record, truth, tombstone=tombstone)
    found.missing = len(truth.keys() - seen)
    return found


def _enter(
    found: Account, seen: set[int], record: dict[str, Any], truth: Mapping[int, Truth], *, tombstone: bool
) -> None:
    row, error = record["row_id"], record["error_kind"]
    if row not in truth:
        found.unexpected += 1
        return
    found.duplicate += row in seen
    seen.add(row)
    if tombstone:
        found.unanswered[error] += 1
    elif error is None:
        found.answered += 1
    else:
        found.errors[error] += 1
    due, got = truth[row], Truth(record["answer"], error)
    if not tombstone and got[:2] == due[:2]:
        return
    finding = Finding(row, _said(due), ("tombstone: " if tombstone else "") + _said(got), record)
    excused = not tombstone and due.breaks and error in _DEATHS
    (found.other_kind if excused else found.findings).append(finding)


def _said(end: Truth) -> str:
    return end.error if end.error is not None else f"answer {end.answer!r}"
