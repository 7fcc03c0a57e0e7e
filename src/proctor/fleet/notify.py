"""Tells a webhook what happens to a fleet. Nothing that the webhook does, or does not do, is ever waited for."""

from __future__ import annotations

import threading
import time
from collections import deque
from fnmatch import fnmatchcase
from typing import NamedTuple, Protocol

from proctor.fleet.webhook import Reply, Webhook
from proctor.rows import Event
from proctor.spec.notify import NotifySpec
from proctor.trackers.redaction import redacted

_ROOM = 500
"""Messages that may wait; of more than these the oldest are dropped, and counted."""
_LINES = 30
"""Most lines of one message. What has gathered while the webhook was out of reach comes together."""
_LONGEST_LINE = 500
"""Most characters of an event's own words: Slack takes 40,000 a message."""
_PAUSE = 1.0
"""Seconds between two messages: Slack takes one a second."""
_FIRST_WAIT, _LONGEST_WAIT = 2.0, 60.0
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
"""What Slack's text must not hold as it is (https://api.slack.com/reference/surfaces/formatting#escaping)."""


class Told(NamedTuple):
    """How far a notifier is.

    Attributes:
        arrived: events that the webhook has taken.
        lost: events that were given up, or that nobody had room for.
        waiting: events that are still to be sent.
        trouble: what is wrong at the moment; empty if nothing is. Never holds the URL.
    """

    arrived: int = 0
    lost: int = 0
    waiting: int = 0
    trouble: str = ""


class Poster(Protocol):
    """Sends one text; returns in time, whatever happens."""

    def post(self, text: str, seconds: float | None = None) -> Reply:
        """Sends `text` within `seconds`."""


class Notifier:
    """Takes events at any time and sends those that are to be told, in a thread of its own.

    Args:
        spec: what is told, and how often it is tried; None: nothing is.
        poster: what sends; None: nothing is sent.
        title: stands before each line: the name of the fleet.
        pace: seconds that the waits are counted in; less than 1 for tests.
    """

    def __init__(self, spec: NotifySpec | None, poster: Poster | None, title: str = "", pace: float = 1.0) -> None:
        self._events = [] if spec is None or poster is None else spec.events
        self._attempts = 1 if spec is None else spec.attempts
        self._title, self._pace = title, pace
        self._lines: deque[str] = deque()
        self._changed = threading.Condition()
        self._closing, self._give_up = False, float("inf")
        self._told = Told()
        self._thread: threading.Thread | None = None
        if poster is not None:
            self._thread = threading.Thread(target=self._run, args=(poster,), name="proctor-notify", daemon=True)
            self._thread.start()

    @classmethod
    def of(cls, spec: NotifySpec | None, title: str = "") -> Notifier:
        """The notifier that a fleet's spec asks for; one that tells nobody where it asks for none.

        Raises:
            UserError: the environment variable holds no URL.
        """
        return cls(spec, None if spec is None else Webhook(spec.webhook_env, spec.seconds), title)

    def tell(self, event: Event) -> None:
        """Hands over an event; never waits, never raises. Kinds that the spec does not name are left out."""
        if not any(fnmatchcase(event.kind, pattern) for pattern in self._events):
            return
        line = self._line(event)
        with self._changed:
            if self._closing:
                return
            if len(self._lines) >= _ROOM:
                self._lines.popleft()
                self._told = self._told._replace(lost=self._told.lost + 1)
            self._lines.append(line)
            self._changed.notify_all()

    @property
    def state(self) -> Told:
        """How far it is; for whoever records it."""
        with self._changed:
            return self._told._replace(waiting=self._told.waiting + len(self._lines))

    def close(self, timeout: float = 10.0) -> Told:
        """Takes no more, sends what waits for at most `timeout` seconds, and returns how far that got."""
        with self._changed:
            self._closing, self._give_up = True, time.monotonic() + timeout
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout)
        return self.state

    def _line(self, event: Event) -> str:
        name, attempt = event.data.get("unit", ""), event.data.get("attempt")
        which = f"{name}, attempt {attempt}:" if attempt else f"{name}:" if name else ""
        parts = [
            f"*{self._title}*" if self._title else "",
            f"`{event.kind}`",
            which,
            redacted(event.message)[:_LONGEST_LINE],
        ]
        line = " ".join(part for part in parts if part).translate(_ESCAPES)
        return f"{line} ({event.action.translate(_ESCAPES)})" if event.action else line

    def _run(self, poster: Poster) -> None:
        pause = 0.0
        while self._more():
            self._sleep(pause)
            if lines := self._take():
                reply = self._deliver(poster, "\n".join(lines))
                self._count(reply, len(lines))
            pause = _PAUSE

    def _more(self) -> bool:
        """Waits for a line; whether there is one, and time to send it."""
        with self._changed:
            while not self._lines and not self._closing:
                self._changed.wait()
            return bool(self._lines) and time.monotonic() < self._give_up

    def _take(self) -> list[str]:
        """The lines that wait, a message full of them."""
        with self._changed:
            lines = [self._lines.popleft() for _ in range(min(_LINES, len(self._lines)))]
            self._told = self._told._replace(waiting=len(lines))
            return lines

    def _count(self, reply: Reply, lines: int) -> None:
        arrived, lost = (lines, 0) if reply.ok else (0, lines)
        with self._changed:
            self._told = Told(self._told.arrived + arrived, self._told.lost + lost, 0, reply.trouble)

    def _deliver(self, poster: Poster, text: str) -> Reply:
        """Tries until it has arrived, cannot arrive, or has been tried often enough."""
        reply = Reply(ok=False, trouble="no time was left")
        for attempt in range(self._attempts):
            if attempt:
                usual = _FIRST_WAIT * 2.0 ** min(attempt - 1, 10)
                self._sleep(min(usual if reply.wait is None else reply.wait, _LONGEST_WAIT))
            left = self._give_up - time.monotonic()
            if left <= 0:
                return reply
            reply = _tried(poster, text, left)
            if reply.ok or not reply.again:
                return reply
            with self._changed:
                self._told = self._told._replace(trouble=reply.trouble)
        return reply

    def _sleep(self, seconds: float) -> None:
        """Waits so long; a second at most once it is to be closed."""
        woken = time.monotonic() + seconds * self._pace
        with self._changed:
            self._changed.wait_for(lambda: self._closing, woken - time.monotonic())
            ends = self._give_up
        time.sleep(max(0.0, min(woken, ends, time.monotonic() + _PAUSE * self._pace) - time.monotonic()))


def _tried(poster: Poster, text: str, left: float) -> Reply:
    try:
        return poster.post(text, left)
    except Exception as error:  # whatever it is, it must not end the thread; its text may hold the URL
        return Reply(ok=False, trouble=type(error).__name__)
