"""Events of one supervisor."""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Mapping, Sequence

from proctor.engines.news import FELL_BACK, News
from proctor.rows import Event
from proctor.supervise.counters import Counters

LISTED_ROWS = 8
_log = logging.getLogger(__name__)


class Announcer:
    """Names the engine and the host in each event, and keeps a listener's failure away from the supervisor."""

    def __init__(self, engine: str, listener: Callable[[Event], None]) -> None:
        self._engine = engine
        self._host = platform.node()
        self._listener = listener

    def __call__(
        self,
        kind: str,
        message: str = "",
        *,
        action: str = "",
        rows: Sequence[int] = (),
        duration: float | None = None,
        data: Mapping[str, str | int | float | bool | None] | None = None,
    ) -> None:
        """Tells the listener of an event; see `proctor.rows.Event`."""
        event = Event(
            kind,
            action=action,
            rows=tuple(rows[:LISTED_ROWS]),
            count=len(rows),
            engine=self._engine,
            host=self._host,
            duration=duration,
            message=message,
            data=dict(data or {}),
        )
        try:
            self._listener(event)
        except Exception:
            _log.exception("the listener failed at event %s", kind)


def pass_on(news: News, announce: Announcer, counters: Counters) -> None:
    """Makes an event of what an engine tells, and counts it where there is a counter for it."""
    announce(news.kind, news.message, action=news.action, duration=news.seconds, data=news.data)
    counters.fallbacks += news.kind == FELL_BACK
