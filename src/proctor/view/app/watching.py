"""Pages that change by themselves: who listens is told when the files of what is shown have changed.

The words are those of server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html): an event for
each change, whose id is the mark of what there is now. A browser that connects anew sends the last id along.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Hashable
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool

from proctor.rows import UserError
from proctor.view.browse.marks import Sight

MOST_LISTENERS = 48
_SHARE = 5
"""A look that takes long is followed by a pause of so many times as long."""
_QUIET_SECONDS = 15.0
"""Silence after which a line is sent that says nothing: a connection that is gone without a word shows then."""
_LATER = b"retry: 30000\n\n"
_GONE = Sight("gone", over=True)


@dataclass(slots=True)
class _Watched:
    """Something that is looked at for all who listen; nobody looks while nobody listens."""

    look: Callable[[], Sight]
    listeners: int = 0
    last: Sight = _GONE
    due: float = 0.0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def sight(self) -> Sight:
        """What the last look told, if another one is not due yet."""
        async with self.turn:
            began = time.monotonic()
            if began >= self.due:
                try:
                    self.last = await run_in_threadpool(self.look)
                except (OSError, UserError):  # taken away, or its storage is: the page says it when it is asked again
                    self.last = _GONE
                ended = time.monotonic()
                self.due = ended + max(self.last.pause, _SHARE * (ended - began))
            return self.last


class Watching:
    """All that is being watched."""

    def __init__(self) -> None:
        self._watched: dict[Hashable, _Watched] = {}
        self._leaving = asyncio.Event()

    @property
    def listeners(self) -> int:
        """How many listen now."""
        return sum(watched.listeners for watched in self._watched.values())

    def leave(self) -> None:
        """Ends all streams: the server stops. To be called in the server's own thread."""
        self._leaving.set()

    async def follow(self, key: Hashable, look: Callable[[], Sight], seen: str) -> AsyncIterator[bytes]:
        """The stream for one listener, until there is nothing more to come; where `MOST_LISTENERS` listen already, it
        says no more than when to ask again.

        Args:
            key: of what is watched: those who listen to the same share the looks.
            look: at it; runs in a thread.
            seen: the mark of what the listener has.
        """
        if self.listeners >= MOST_LISTENERS:  # they came together: none was here yet when each was let in
            yield _LATER
            return
        watched = self._watched.setdefault(key, _Watched(look))
        watched.listeners += 1
        said = time.monotonic()
        try:
            yield b"retry: 3000\n\n"
            while not self._leaving.is_set():
                sight = await watched.sight()
                if sight.mark != seen:
                    seen, said = sight.mark, time.monotonic()
                    yield f"id: {seen}\ndata: changed\n\n".encode()
                elif time.monotonic() - said > _QUIET_SECONDS:
                    said = time.monotonic()
                    yield b": nothing new\n\n"
                if sight.over:
                    return
                await self._rest(watched.due - time.monotonic())
        finally:
            watched.listeners -= 1
            if not watched.listeners:
                self._watched.pop(key, None)

    async def _rest(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._leaving.wait(), max(0.01, min(seconds, _QUIET_SECONDS)))
        except TimeoutError:
            return
