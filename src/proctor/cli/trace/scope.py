"""Options that say which part of a trace a verb is about, and how times are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proctor.trace import Trace
    from proctor.trace.work.scope import Scope


def scope_of(trace: Trace, since: str | None, until: str | None, device: int | None) -> Scope:
    """The scope that ``--since``, ``--until`` and ``--device`` ask for.

    Raises:
        UserError: a time cannot be read, the window ends before it begins, or the trace has no such GPU.
    """
    from proctor.trace.timeline.timeline import origin
    from proctor.trace.work.scope import check_device, within

    begin, end = window_of(since, until)
    check_device(trace, device)
    first = 0 if begin is None and end is None else origin(trace)
    return within(first, begin, end, device)


def window_of(since: str | None, until: str | None) -> tuple[int | None, int | None]:
    """What ``--since`` and ``--until`` say, in ns after the first event.

    Raises:
        UserError: a time cannot be read, or the window ends before it begins.
    """
    from proctor.trace.timeline.timeline import parse_time
    from proctor.trace.work.scope import check_window

    begin, end = (None if text is None else parse_time(text) for text in (since, until))
    check_window(begin, end)
    return begin, end


def ms(nanoseconds: float) -> str:
    """Milliseconds with three decimals."""
    return f"{nanoseconds / 1e6:,.3f}"


def us(nanoseconds: float) -> str:
    """Microseconds with one decimal."""
    return f"{nanoseconds / 1e3:,.1f}"


def percent(share: float) -> str:
    """``12.3%``."""
    return f"{share:.1%}"
