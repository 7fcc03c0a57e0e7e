"""How a run stands, in a word: from whether a driver holds it, and from what it said last."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from proctor.results import RunDir
from proctor.rows.text import line_of
from proctor.view.verdict import Tone, Verdict

RUNNING, CRASHED, NOT_STARTED = "running", "crashed", "not started"
_UNDER_WAY = ("running", "starting")
_BY_CODE = {0: "complete", 1: "mistake", 2: "too many errors", 3: "incomplete", 130: "interrupted"}
_TONES: dict[str, Tone] = {
    "complete": "good",
    "too many errors": "warn",
    "interrupted": "warn",
    "mistake": "bad",
    "incomplete": "bad",
    CRASHED: "bad",
}


class Counts(msgspec.Struct, frozen=True):
    """One checkpoint, in ``status.json`` (`proctor.runner.snapshot.CheckpointProgress` says what each is)."""

    total: int = 0
    before: int = 0
    done: int = 0
    answered: int = 0
    errors: dict[str, int] = {}


class Last(msgspec.Struct, frozen=True):
    """What a run said last, in ``status.json``.

    Attributes:
        time: when, in seconds since the epoch.
        seconds: how long it had been running.
        active: checkpoint and sweep under way.
        rate: rows a second over the last half minute.
        eta_seconds: until all rows of all checkpoints are done.
    """

    state: str = "starting"
    time: float = 0.0
    seconds: float = 0.0
    active: tuple[str, int] | None = None
    rate: float = 0.0
    eta_seconds: float | None = None
    checkpoints: dict[str, Counts] = {}

    @property
    def total(self) -> int:
        """Rows of all checkpoints."""
        return sum(counts.total for counts in self.checkpoints.values())

    @property
    def done(self) -> int:
        """Rows with a final record."""
        return sum(counts.done for counts in self.checkpoints.values())

    @property
    def errors(self) -> int:
        """Final errors since the run was last started."""
        return sum(sum(counts.errors.values()) for counts in self.checkpoints.values())

    @property
    def worked(self) -> int:
        """Rows done since the run was last started."""
        return sum(counts.done - counts.before for counts in self.checkpoints.values())

    @property
    def share(self) -> float:
        """Done of all, 0 to 1."""
        return max(0.0, min(1.0, self.done / self.total)) if self.total > 0 else 0.0

    @property
    def closing(self) -> bool:
        """Whether all rows are done, so that a run under way has nothing left but to close."""
        return 0 < self.total <= self.done

    @property
    def left(self) -> float | None:
        """Seconds to go, if that is known and a time that anybody waits for."""
        eta = self.eta_seconds
        return eta if eta is not None and math.isfinite(eta) and 0 <= eta < 1e9 else None


class State(NamedTuple):
    """A word, and the colour that it has everywhere."""

    word: str
    tone: Tone


def tone_of(word: str) -> Tone:
    """The colour of a state."""
    return _TONES.get(word, "open")


UNREADABLE = State("unreadable", "bad")


def last_of(run: RunDir) -> Last | None:
    """What a run said last; None if it never said anything.

    Raises:
        UserError, ValueError: ``status.json`` is damaged.
    """
    found = run.read("status")
    return None if found is None else msgspec.convert(found, Last)


def state_of(last: Last | None, *, live: bool, exit_code: object = None) -> State:
    """How a run stands.

    Args:
        last: what it said last.
        live: whether a driver holds it.
        exit_code: of the time when it last closed, as ``reconciliation.json`` has it; None if it never did.
    """
    if live:
        return State(RUNNING, "open")
    if last is None:
        word = _BY_CODE.get(exit_code, NOT_STARTED) if isinstance(exit_code, int) else NOT_STARTED
    else:
        word = CRASHED if last.state in _UNDER_WAY else line_of(last.state.replace("_", " "))[:40]
    return State(word, tone_of(word))


def headline(state: State, closed: Verdict, last: Last | None) -> Verdict:
    """The first line of a run's page: how it stands now, which an account of an earlier closing does not tell."""
    if state.word == RUNNING:
        said = "It has not told anything yet." if last is None else f"{last.done:,} of {last.total:,} rows are done."
        return Verdict("open", "Running", said, None)
    if state.word == CRASHED:
        detail = "Its driver is gone without a word. Running the same command again resumes the run."
        return Verdict("bad", "Crashed", detail, None)
    if state.word == NOT_STARTED:
        return Verdict("open", "Not started", "No row has been handed out yet.", None)
    return closed


_ENGINES = ("vllm", "transformers", "torch")
"""The first that an engine has told of is what it runs on."""


@dataclass(frozen=True, slots=True)
class Versions:
    """What a list tells of a run's versions: Proctor's, and that of what its engine runs on."""

    proctor: str
    engine: str

    @classmethod
    def of(cls, versions: dict[str, str]) -> Versions:
        """From ``versions.json``, where engines have told theirs as ``engine: NAME``."""
        told = (f"{name} {versions[key]}" for name in _ENGINES if (key := f"engine: {name}") in versions)
        return cls(versions.get("proctor", ""), next(told, ""))


NOT_TOLD = Versions("", "")
