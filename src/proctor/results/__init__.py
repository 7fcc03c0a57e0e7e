"""The run directory: records, reconciliation, history. What it says is what a run has done."""

from __future__ import annotations

from proctor.results.attempts import write_attempts
from proctor.results.parts import write_records
from proctor.results.reconcile import Ledger, Reconciliation, reconcile
from proctor.results.rundir import RunDir
from proctor.results.settle import Settled, lift_tombstones, settle
from proctor.results.tombstones import write_tombstones

__all__ = [
    "Ledger",
    "Reconciliation",
    "RunDir",
    "Settled",
    "lift_tombstones",
    "reconcile",
    "settle",
    "write_attempts",
    "write_records",
    "write_tombstones",
]
