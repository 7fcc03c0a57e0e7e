"""How far a unit's run is, in rows: from what the run last said, or from its accounts."""

from __future__ import annotations

from typing import Any

from proctor.fleet.view import Rows
from proctor.results import RunDir
from proctor.rows import UserError


def rows_of_status(status: Any) -> Rows | None:
    """Adds up the checkpoints of a ``status.json``; None if it is none.

    Args:
        status: as far as it could be read; see `proctor.runner.snapshot.status_json`.
    """
    try:
        entries = list(status["checkpoints"].values())
        errors = sum(sum(entry["errors"].values()) for entry in entries)
        return Rows(sum(entry["total"] for entry in entries), sum(entry["done"] for entry in entries), errors)
    except (KeyError, TypeError, AttributeError):
        return None


def rows_of_ledgers(run: RunDir) -> Rows | None:
    """Adds up the accounts of a run that has closed, all of its tries in them; None if there are none.

    Raises:
        OSError: storage failed.
    """
    try:
        ledgers = (run.read("reconciliation") or {})["checkpoints"]
        errors = sum(sum(ledger["errors"].values()) for ledger in ledgers)
        answered = sum(ledger["answered"] for ledger in ledgers)
        return Rows(sum(ledger["expected"] for ledger in ledgers), answered + errors, errors)
    except (UserError, KeyError, TypeError, AttributeError):
        return None
