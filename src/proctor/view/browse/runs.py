"""Runs in short, as a list shows them: a damaged one is a line with the reason, never an error of the whole list."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from proctor.results import Ledger, RunDir
from proctor.rows import UserError
from proctor.rows.text import line_of, told
from proctor.storage.folder import Folder
from proctor.tasks import Metric, Summary
from proctor.view.browse.places import check_own

MOST_BYTES = 64 << 20
"""Largest file of a run, other than its results, that is shown."""
OWN_FILES = ("spec.yaml", "events.jsonl", "source.json", "status.json", "reconciliation.json", "metrics.json")
_OWN = (
    *OWN_FILES,
    "versions.json",
    "plan.json",
    "results",
    "attempts",
    "stalls",
    "events",
    "audit",
    "audit/verdict.json",
)


DAMAGE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What reading a file of a run may raise if somebody else has written into it."""


class _Account(msgspec.Struct):
    """What is read of ``reconciliation.json``."""

    checkpoints: list[Ledger]


@dataclass(frozen=True, slots=True)
class RunLine:
    """A run as its small files tell it.

    Attributes:
        state: ``running``, ``crashed``, or how it ended.
        ledgers: its account, empty before it first closed.
        metric: name and value of the first metric of the last checkpoint that has any.
        problem: why there is nothing else here; empty if there is.
    """

    state: str = "unreadable"
    ledgers: list[Ledger] = field(default_factory=list)
    metric: tuple[str, Metric] | None = None
    problem: str = ""

    @property
    def expected(self) -> int:
        """Rows of all checkpoints."""
        return sum(ledger.expected for ledger in self.ledgers)

    @property
    def answered(self) -> int:
        """Rows with an answer."""
        return sum(ledger.answered for ledger in self.ledgers)

    @property
    def errors(self) -> int:
        """Rows with a final error."""
        return sum(sum(ledger.errors.values()) for ledger in self.ledgers)

    @property
    def unanswered(self) -> int:
        """Rows that run again when the run is resumed."""
        return sum(sum(ledger.unanswered.values()) for ledger in self.ledgers)

    @property
    def balance(self) -> int:
        """Expected minus answered, errors and unanswered."""
        return self.expected - self.answered - self.errors - self.unanswered

    @property
    def odd(self) -> bool:
        """Whether a ledger does not balance, or says that something turned up that should not have."""
        return any(
            ledger.expected - ledger.answered - sum(ledger.errors.values()) - sum(ledger.unanswered.values())
            or ledger.missing
            or ledger.duplicate
            or ledger.unexpected
            or ledger.unsound
            or ledger.notices
            for ledger in self.ledgers
        )


def open_run(folder: Folder) -> RunDir:
    """The run in a folder, if its own files may be read.

    Raises:
        UserError: there is none; or a file is a symbolic link or larger than `MOST_BYTES`.
        OSError: storage failed.
    """
    check_own(folder, _OWN, MOST_BYTES)
    return RunDir.existing(folder)


def ledgers_of(run: RunDir) -> list[Ledger]:
    """The account of a run; empty before it first closed.

    Raises:
        UserError, ValueError: ``reconciliation.json`` is damaged.
    """
    account = run.read("reconciliation")
    return msgspec.convert(account, _Account).checkpoints if account else []


def run_line(folder: Folder) -> RunLine:
    """The run in a folder, in short; what cannot be read is its `problem`."""
    try:
        run = open_run(folder)
        last = run.read("status") or {}
        return RunLine(_state(run, last), ledgers_of(run), _metric(run.read("metrics") or {}))
    except UserError as error:
        return RunLine(problem=line_of(str(error)))
    except (OSError, *DAMAGE) as error:
        return RunLine(problem=f"damaged: {told(error)}")


def _state(run: RunDir, last: dict[str, Any]) -> str:
    if run.live:
        return "running"
    state = str(last.get("state", "starting"))
    return "crashed" if state in ("running", "starting") else line_of(state)[:40]


def _metric(metrics: dict[str, Any]) -> tuple[str, Metric] | None:
    summaries = msgspec.convert(metrics, dict[str, Summary])
    found = [summary.metrics[0] for summary in summaries.values() if summary.metrics]
    return (found[-1].name, found[-1]) if found else None
