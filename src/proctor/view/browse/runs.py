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
from proctor.view.browse.marks import changed_at
from proctor.view.browse.places import check_own
from proctor.view.browse.states import (
    CRASHED,
    NOT_TOLD,
    RUNNING,
    UNREADABLE,
    Last,
    State,
    Versions,
    last_of,
    state_of,
)

MOST_BYTES = 64 << 20
"""Largest file of a run, other than its results, that is shown."""
OWN_FILES = ("spec.yaml", "events.jsonl", "source.json", "status.json", "reconciliation.json", "metrics.json")
_OWN = (
    *OWN_FILES,
    "versions.json",
    "only.txt",
    "plan.json",
    "results",
    "attempts",
    "stalls",
    "events",
    "audit",
    "audit/verdict.json",
    "lease.json",
    ".lock",
)


DAMAGE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What reading a file of a run may raise if somebody else has written into it."""


class _Account(msgspec.Struct):
    """What is read of ``reconciliation.json``."""

    checkpoints: list[Ledger]
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class RunLine:
    """A run as its small files tell it.

    Attributes:
        state: how it stands.
        last: what it said last; None if it never said anything.
        versions: what computed it.
        changed: when something of it last changed, in seconds since the epoch; 0 if that is not known.
        ledgers: its account, empty before it first closed.
        metric: name and value of the first metric of the last checkpoint that has any.
        problem: why there is nothing else here; empty if there is.
    """

    state: State = UNREADABLE
    last: Last | None = None
    ledgers: list[Ledger] = field(default_factory=list)
    metric: tuple[str, Metric] | None = None
    versions: Versions = NOT_TOLD
    changed: float = 0.0
    problem: str = ""

    @property
    def under_way(self) -> bool:
        """Whether what it said last tells more than its account: it has none, or one of an earlier time."""
        return self.last is not None and (self.state.word in (RUNNING, CRASHED) or not self.ledgers)

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


def check_run(folder: Folder, most_bytes: int = MOST_BYTES) -> None:
    """Whether the files and folders that a run in `folder` has, or will have, may be read.

    Raises:
        UserError: one is a symbolic link or larger than `most_bytes`.
        OSError: storage failed.
    """
    check_own(folder, _OWN, most_bytes)


def open_run(folder: Folder) -> RunDir:
    """The run in a folder, if its own files may be read.

    Raises:
        UserError: there is none; or a file is a symbolic link or larger than `MOST_BYTES`.
        OSError: storage failed.
    """
    check_run(folder)
    return RunDir.existing(folder)


def account_of(run: RunDir) -> tuple[list[Ledger], int | None]:
    """The account of a run and the exit code that it closed with; empty and None before it first closed.

    Raises:
        UserError, ValueError: ``reconciliation.json`` is damaged.
    """
    account = run.read("reconciliation")
    if not account:
        return [], None
    read = msgspec.convert(account, _Account)
    return read.checkpoints, read.exit_code


def run_line(folder: Folder) -> RunLine:
    """The run in a folder, in short; what cannot be read is its `problem`."""
    changed = 0.0
    try:
        changed = changed_at(folder)
        run = open_run(folder)
        last, (ledgers, exit_code) = last_of(run), account_of(run)
        return RunLine(
            state_of(last, live=run.live, exit_code=exit_code),
            last,
            ledgers,
            _metric(run.read("metrics") or {}),
            Versions.of(msgspec.convert(run.read("versions") or {}, dict[str, str])),
            changed or (last.time if last is not None else 0.0),
        )
    except UserError as error:
        return RunLine(problem=line_of(str(error)), changed=changed)
    except (OSError, *DAMAGE) as error:
        return RunLine(problem=f"damaged: {told(error)}", changed=changed)


def _metric(metrics: dict[str, Any]) -> tuple[str, Metric] | None:
    """The metric that the last checkpoint with any shows first."""
    summaries = msgspec.convert(metrics, dict[str, Summary])
    for summary in reversed(summaries.values()):
        named = {metric.name: metric for metric in summary.metrics}
        if named:
            name = summary.headline if summary.headline in named else summary.metrics[0].name
            return name, named[name]
    return None
