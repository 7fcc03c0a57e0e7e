"""The part of a trace's time that a timeline shows, and how one gets from one part to another."""

from __future__ import annotations

from typing import NamedTuple

from proctor.rows import UserError
from proctor.trace.timeline.timeline import parse_time

SHORTEST = 200
"""Nanoseconds: timestamps of GPUs are multiples of 32."""
_LONGEST_TEXT = 60


class Window(NamedTuple):
    """From `begin` to before `end`, ns after the first event of a trace that lasts `span`."""

    begin: int
    end: int
    span: int

    @classmethod
    def of(cls, begin: str, end: str, span: int) -> Window:
        """The window that two texts say (``1.5ms``; nothing is the trace's own), moved into the trace.

        Raises:
            UserError: one is no time.
        """
        first, last = _time(begin, 0, "from"), _time(end, span, "to")
        return cls.around(first, max(last, first), span)

    @classmethod
    def around(cls, begin: int, end: int, span: int) -> Window:
        """The window closest to these times that lies in the trace and is not shorter than `SHORTEST`."""
        length = min(max(end - begin, SHORTEST), max(span, SHORTEST))
        first = min(max(0, (begin + end - length) // 2), max(0, span - length))
        return cls(first, first + length, span)

    @property
    def length(self) -> int:
        """Nanoseconds."""
        return self.end - self.begin

    @property
    def whole(self) -> bool:
        """Whether it is all of the trace."""
        return self.begin <= 0 and self.end >= self.span

    def zoomed(self, numerator: int, denominator: int) -> Window:
        """So many times as long, around the same middle."""
        middle, length = (self.begin + self.end) // 2, self.length * numerator // denominator
        return Window.around(middle - length // 2, middle - length // 2 + length, self.span)

    def moved(self, quarters: int) -> Window:
        """As long, so many quarters of its length later."""
        by = self.length * quarters // 4
        begin = min(max(0, self.begin + by), max(0, self.span - self.length))
        return Window(begin, begin + self.length, self.span)


def _time(text: str, default: int, name: str) -> int:
    if not text.strip():
        return default
    try:
        return parse_time(text[:_LONGEST_TEXT])
    except UserError as error:
        raise UserError(f"{name}: {error.what}", fix=error.fix) from error
