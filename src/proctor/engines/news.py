"""What an engine tells while it works that is worth an event: nothing that a row's own response could say.

An engine calls `tell` from anywhere in its process; the child process that runs it passes it on to its supervisor. In a
process without a listener the word goes into the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

FELL_BACK = "compile.fell_back"
"""Something that was to run as compiled code runs eagerly from now on."""

Plain = str | int | float | bool | None
Listener = Callable[["News"], None]
Signal = Callable[[bool], None]
_log = logging.getLogger(__name__)
_listener: Listener | None = None
_signal: Signal | None = None


class News(msgspec.Struct, frozen=True):
    """One thing to tell.

    Attributes:
        kind: of the event, e.g. ``compile.done``.
        message: one line for a person.
        action: what was done about it.
        seconds: that it took, if that is known.
        data: further facts.
    """

    kind: str
    message: str = ""
    action: str = ""
    seconds: float | None = None
    data: dict[str, Plain] = {}


def listen(listener: Listener | None) -> None:
    """From now on this process's news goes to `listener`; None: to the log."""
    global _listener
    _listener = listener


def signal_compiling(signal: Signal | None) -> None:
    """From now on `signal` is told when this process begins to compile (True) and when that has ended (False)."""
    global _signal
    _signal = signal


def compiling(*, began: bool) -> None:
    """Says that compiling has begun or ended: between the two no token comes and no row is finished; all is well."""
    if _signal is not None:
        _signal(began)


def tell(kind: str, message: str = "", *, action: str = "", seconds: float | None = None, **data: Plain) -> None:
    """Tells of something; see `News`."""
    news = News(kind, message, action, seconds, data)
    if _listener is None:
        _log.info("%s: %s", kind, message)
    else:
        _listener(news)
