"""Which part of a trace a question is about (a window of time, a device), and what its answer is grouped by."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from proctor.rows import UserError


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


def within(first: int, since: int | None, until: int | None, device: int | None = None) -> Scope:
    """A scope from ns after the trace's first event, which is at `first` on its clock.

    Raises:
        UserError: the window ends before it begins.
    """
    if since is not None and until is not None and until <= since:
        raise UserError(f"the window ends ({until:,} ns) before it begins ({since:,} ns)")
    begin, end = (None if time is None else first + time for time in (since, until))
    return Scope(begin, end, device)
