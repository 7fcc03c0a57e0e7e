"""Reconciliation: what was handed out against what came back, by id."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from proctor.results.parts import is_tombstone, parts_of, read_each, unsound
from proctor.storage.folder import Place, open_folder

_LISTED = 20


@dataclass(slots=True)
class Ledger:
    """One checkpoint's account. It balances when ``expected == answered + errors + unanswered`` and nothing is odd.

    Attributes:
        expected: rows of the source.
        answered: rows with an answer.
        errors: rows with a final error, by kind.
        unanswered: rows with a tombstone, by the last kind of error (they run again when the run is resumed).
        missing: rows without any record.
        duplicate: records beyond the first of their key.
        unexpected: rows with a record that the source does not have.
        unsound: records with neither an answer nor an error, or with both; they count as neither.
        repaired: duplicates that were taken out on the way.
        unparsed: answered rows whose answer could not be parsed; they are never scored.
        truncated: answered rows whose answer was cut off at `sampling.max_tokens`.
        notices: what readers noticed beyond the rows themselves; each is an error of the run.
        missing_ids, unexpected_ids, duplicate_ids: the first few ids of each.
        unsound_parts: the first few parts with `unsound` records.
    """

    checkpoint: str
    expected: int = 0
    answered: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    unanswered: dict[str, int] = field(default_factory=dict)
    missing: int = 0
    duplicate: int = 0
    unexpected: int = 0
    unsound: int = 0
    repaired: int = 0
    unparsed: int = 0
    truncated: int = 0
    notices: list[str] = field(default_factory=list)
    missing_ids: list[int] = field(default_factory=list)
    unexpected_ids: list[int] = field(default_factory=list)
    duplicate_ids: list[int] = field(default_factory=list)
    unsound_parts: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether every row has its answer or its final error, once, and nothing else turned up."""
        odd = self.missing or self.duplicate or self.unexpected or self.unsound or self.notices
        return not odd and not self.unanswered and self.expected == self.answered + sum(self.errors.values())

    @property
    def error_rate(self) -> float:
        """Share of the expected rows that ended in a final error."""
        return sum(self.errors.values()) / self.expected if self.expected else 0.0


@dataclass(slots=True)
class Reconciliation:
    """The account of a run: one ledger for each checkpoint."""

    ledgers: list[Ledger]

    @property
    def complete(self) -> bool:
        """Whether every ledger is complete."""
        return all(ledger.complete for ledger in self.ledgers)

    def to_json(self) -> dict[str, Any]:
        """Plain data for ``reconciliation.json``."""
        return {
            "complete": self.complete,
            "checkpoints": [{**asdict(x), "complete": x.complete, "error_rate": x.error_rate} for x in self.ledgers],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Reconciliation:
        """The account that `to_json` wrote."""
        names = set(Ledger.__dataclass_fields__)
        return cls([Ledger(**{k: v for k, v in x.items() if k in names}) for x in data["checkpoints"]])


def reconcile(results: Place, checkpoint: str, expected: BitMap64, repaired: int = 0) -> Ledger:
    """Counts the records of `checkpoint` in ``results`` against the `expected` ids, from the files alone."""
    ledger = Ledger(checkpoint, expected=len(expected), repaired=repaired)
    seen, twice, notices = BitMap64(), BitMap64(), set[str]()
    folder = open_folder(results)
    for part, table in read_each(folder, parts_of(folder, checkpoint), _read_counted):
        if isinstance(table, Exception):
            raise table
        ids = BitMap64(table["row_id"].to_numpy())
        ledger.duplicate += table.num_rows - len(ids - seen)
        twice |= ids & seen
        seen |= ids
        odd = unsound(table)
        _count(table.filter(pc.invert(odd))["error_kind"], ledger, tombstone=is_tombstone(part))
        found = pc.sum(odd, min_count=0).as_py()
        ledger.unsound += found
        ledger.unsound_parts += [part] if found and len(ledger.unsound_parts) < _LISTED else []
        ledger.unparsed += table.num_rows - table["parse_error"].null_count
        ledger.truncated += pc.sum(pc.equal(table["finish_reason"], "length"), min_count=0).as_py()
        notices |= {text for text in pc.unique(table["notice"]).to_pylist() if text}
    missing, unexpected = expected - seen, seen - expected
    ledger.missing, ledger.missing_ids = len(missing), _first(missing)
    ledger.unexpected, ledger.unexpected_ids = len(unexpected), _first(unexpected)
    ledger.duplicate_ids, ledger.notices = _first(twice), sorted(notices)[:_LISTED]
    return ledger


def _read_counted(source: Any) -> pa.Table:
    return pq.read_table(source, columns=["row_id", "answer", "error_kind", "notice", "parse_error", "finish_reason"])


def _count(kinds: pa.ChunkedArray, ledger: Ledger, *, tombstone: bool) -> None:
    into = ledger.unanswered if tombstone else ledger.errors
    for entry in pc.value_counts(kinds).to_pylist():
        kind, count = entry["values"], entry["counts"]
        if kind is None:
            ledger.answered += count
        else:
            into[kind] = into.get(kind, 0) + count


def _first(ids: BitMap64) -> list[int]:
    return [row_id for row_id, _ in zip(ids, range(_LISTED), strict=False)]
