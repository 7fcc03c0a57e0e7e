"""How an engine's process came to its end, and what that means for a row that was alone with it."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from typing import NamedTuple

from proctor.rows import ErrorKind, Failure, UserError
from proctor.supervise import wire

Facts = dict[str, str | int | float | bool | None]


class Verdict(NamedTuple):
    """What a guilty row ends with, and what an event says about it."""

    failure: Failure
    facts: Facts


@dataclass(frozen=True, slots=True)
class Death:
    """The end of one process of the engine.

    Attributes:
        kind: the error kind of a row that is found guilty of it.
        message: what happened, in one line.
        signal_name: the signal that ended the process by itself, if one did.
        exit_code: its exit code, if it exited by itself.
        exception: type of the exception that came out of the engine, if one did.
        dump: path of the stack dump, after a stall.
        output: the last lines that the process printed before, in one line.
        mistake: the user's mistake that keeps the engine from starting.
    """

    kind: ErrorKind
    message: str
    signal_name: str | None = None
    exit_code: int | None = None
    exception: str | None = None
    dump: str | None = None
    output: str = ""
    mistake: UserError | None = None

    @property
    def stalled(self) -> bool:
        """Whether it was ended because it made no progress."""
        return self.kind is ErrorKind.INFER_STALLED

    @property
    def explained(self) -> str:
        """The message with the last lines of output: for a start, where what went wrong is often told only there."""
        return self.message if self.output in self.message else self.message + _told(self.output)

    @property
    def facts(self) -> Facts:
        """What an event says about it beyond the message."""
        known = {
            "signal": self.signal_name,
            "exit_code": self.exit_code,
            "exception": self.exception,
            "dump": self.dump,
        }
        return {name: value for name, value in known.items() if value is not None}

    def verdict(self, attempts: int) -> Verdict:
        """That on a row which was alone with the engine, more than once, when it died."""
        message = f"{self.message}; this row was alone in the engine ({attempts} attempts in all)"
        return Verdict(Failure(self.kind, message), self.facts)


def by_exception(broken: wire.Broken, output: str) -> Death:
    """An exception came out of the engine; `output` is what it printed before."""
    kind, message = ErrorKind.INFER_OOM if broken.out_of_memory else ErrorKind.INFER_FAILED, broken.message
    if broken.crashed:  # the exception knows only that: the cause is in the log of the process that is dead
        kind, message = ErrorKind.INFER_CRASHED, message + _told(output)
    return Death(kind, message, exception=broken.exception, output=output, mistake=broken.user_error())


def by_status(status: int | None, output: str, who: str = "the engine's process") -> Death:
    """The process ended by itself, or hung up on the supervisor.

    Args:
        status: exit code, or the negative number of the signal; None if it is still there.
        output: end of the child's log, for an exit that says nothing by itself.
        who: which process of the engine's.
    """
    kind, told = ErrorKind.INFER_CRASHED, _told(output)
    if status is None:
        return Death(kind, f"{who} closed its connection{told}", output=output)
    if status >= 0:
        return Death(kind, f"{who} exited with code {status}{told}", exit_code=status, output=output)
    name = _signal_name(-status)
    hint = " (the system's out-of-memory killer uses it)" if name == "SIGKILL" else ""
    return Death(kind, f"{who} died by {name}{hint}", signal_name=name, output=output)


def by_stall(what: str, dump: str, output: str) -> Death:
    """The process made no progress; its stacks are in the file `dump`."""
    return Death(ErrorKind.INFER_STALLED, f"{what}; stacks in {dump}", dump=dump, output=output)


def by_os_error(error: OSError, python: str | None) -> Death:
    """The process could not be started at all. With an interpreter that the user names, that is the user's mistake."""
    message = f"cannot run {python or sys.executable}: {error.strerror or error}"
    wrong_path = isinstance(error, (FileNotFoundError, NotADirectoryError, PermissionError))
    mistake = None
    if python is not None and wrong_path:
        mistake = UserError(message, where="engine.python", fix="name the python of the engine's environment")
    return Death(ErrorKind.INFER_CRASHED, message, mistake=mistake)


def _told(output: str) -> str:
    return f"; its last output: {output}" if output else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
