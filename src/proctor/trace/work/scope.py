"""Which part of a trace a question is about (a window of time, a device), and what its answer is grouped by."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from proctor.rows import UserError

if TYPE_CHECKING:
    from proctor.trace.trace import Trace


class By(StrEnum):
    """What a census groups by."""

    FULL = "full"
    SHORT = "short"
    CATEGORY = "category"
    NVTX = "nvtx"
    STREAM = "stream"
    DEVICE = "device"
    PROCESS = "process"


class Scope(msgspec.Struct, frozen=True):
    """Work that started at or after `since` and before `until`, on `device`; whole, wherever it ended.

    Attributes:
        since: ns on the trace's own clock; None: from the beginning.
        until: ns on the trace's own clock; None: to the end.
        device: ``deviceId``, as the processes number it; None: every device.
    """

    since: int | None = None
    until: int | None = None
    device: int | None = None

    @property
    def sql(self) -> str:
        """The condition on a view with the alias ``v``; its parameters are `parameters`."""
        conditions = [
            f"v.{column} {compare} :scope_{name}"
            for name, column, compare in (("since", "start", ">="), ("until", "start", "<"), ("device", "device", "="))
            if getattr(self, name) is not None
        ]
        return " AND ".join(conditions) or "1"

    @property
    def parameters(self) -> Mapping[str, int]:
        """Values of the parameters in `sql`."""
        values = {"since": self.since, "until": self.until, "device": self.device}
        return {f"scope_{name}": value for name, value in values.items() if value is not None}


WHOLE = Scope()
"""Everything in the trace."""


def check_device(trace: Trace, device: int | None) -> None:
    """Raises where `device` is no GPU of `trace`.

    Raises:
        UserError: naming those that there are.
    """
    known = sorted({gpu.device for gpu in trace.gpus})
    if device is not None and device not in known:
        there_is = f"it has {', '.join(map(str, known))}" if known else "it has none"
        raise UserError(f"there is no GPU {device} in this trace", where=str(trace.path), fix=there_is)


def nothing_in(trace: Trace, scope: Scope, question: str) -> UserError:
    """What to raise where `question` finds no work in `scope`: that is not to say that the trace has none."""
    if scope == WHOLE:
        return trace.missing("kernels", question)
    asked = "in the part of the trace that was asked for"
    return UserError(f"{question} needs work on a GPU, and none starts {asked}", where=str(trace.path))


def check_window(since: int | None, until: int | None) -> None:
    """Raises where a window ends before it begins.

    Raises:
        UserError: it does.
    """
    if since is not None and until is not None and until <= since:
        raise UserError(f"the window ends ({until:,} ns) before it begins ({since:,} ns)")


def within(first: int, since: int | None, until: int | None, device: int | None = None) -> Scope:
    """A scope from ns after the trace's first event, which is at `first` on its clock.

    Raises:
        UserError: the window ends before it begins.
    """
    check_window(since, until)
    begin, end = (None if time is None else first + time for time in (since, until))
    return Scope(begin, end, device)
