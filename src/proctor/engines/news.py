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
_log = logging.getLogger(__name__)
_listener: Listener | None = None


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


def tell(kind: str, message: str = "", *, action: str = "", seconds: float | None = None, **data: Plain) -> None:
    """Tells of something; see `News`."""
    news = News(kind, message, action, seconds, data)
    if _listener is None:
        _log.info("%s: %s", kind, message)
    else:
        _listener(news)
