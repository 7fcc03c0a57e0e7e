"""Everything that can go wrong, by name.

Two families, never mixed:

* a row's fault or the infrastructure's, met while a run is under way: an `ErrorKind` inside a `Failure`; it ends up
  in a record;
* a mistake of the person who started the run: a `UserError`; it ends the command with one clear line and exit code 1.

Exceptions::

    ProctorError
     +-- UserError        what the user can mend: printed as one line, no traceback
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class ErrorKind(StrEnum):
    """Closed list of what can keep a row from its answer, spelled ``stage.reason``.

    A kind is either `final` (the row's own fault: trying again changes nothing) or `retryable` (the infrastructure's:
    the next sweep tries the row again).
    """

    READ_CORRUPT = "read.corrupt"
    READ_MISSING = "read.missing"
    READ_FAILED = "read.failed"
    READ_CRASHED = "read.crashed"
    PREPARE_DECODE = "prepare.decode"
    PREPARE_FAILED = "prepare.failed"
    PREPARE_CRASHED = "prepare.crashed"
    INFER_EMPTY = "infer.empty"
    INFER_REJECTED = "infer.rejected"
    INFER_FAILED = "infer.failed"
    INFER_CRASHED = "infer.crashed"
    INFER_STALLED = "infer.stalled"
    INFER_OOM = "infer.oom"
    INFER_UNREACHABLE = "infer.unreachable"
    ENGINE_INIT_FAILED = "engine.init_failed"
    SCORE_FAILED = "score.failed"
    SCORE_CRASHED = "score.crashed"
    LOST = "lost"

    @property
    def retryable(self) -> bool:
        """Whether the next sweep tries a row of this kind again."""
        return self in _RETRYABLE

    @property
    def final(self) -> bool:
        """Whether a row of this kind has its last word."""
        return self not in _RETRYABLE

    @property
    def stage(self) -> str:
        """The stage that met the fault: ``read``, ``prepare``, ``infer``, ``engine``, ``score`` or ``lost``."""
        return self.value.partition(".")[0]


_RETRYABLE = frozenset(
    {ErrorKind.READ_FAILED, ErrorKind.INFER_UNREACHABLE, ErrorKind.ENGINE_INIT_FAILED, ErrorKind.LOST}
)


class Failure(msgspec.Struct, frozen=True):
    """Why a row has no answer: a kind and one line a person can act on."""

    kind: ErrorKind
    message: str


class ProctorError(Exception):
    """Base of every exception that Proctor raises on purpose."""


class UserError(ProctorError):
    """A mistake its user can mend: says what, where (file, row, field) and what to do, in one line."""

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None) -> None:
        self.what, self.where, self.fix = what, where, fix
        line = f"{where}: {what}" if where else what
        super().__init__(f"{line} ({fix})" if fix else line)

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments do not survive the default reduction, and Ray carries exceptions between processes.
        return (_rebuild_user_error, (self.what, self.where, self.fix))


def _rebuild_user_error(what: str, where: str | None, fix: str | None) -> UserError:
    return UserError(what, where=where, fix=fix)
