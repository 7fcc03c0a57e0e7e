"""Addresses of pages about traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from proctor.rows import UserError
from proctor.trace.timeline.events import Kind
from proctor.trace.timeline.lanes import GROUPS, Group
from proctor.trace.timeline.related import Key
from proctor.view.traces.files import TraceFile
from proctor.view.traces.window import Window

_LONGEST_ID = 19
_LONGEST_NAME = 4_000
"""Characters, each up to 12 in an address; a server takes no address above 64 KiB."""


def to(page: str, file: TraceFile, **more: object) -> str:
    """The address of ``/page`` about a trace."""
    return f"/{page}?{urlencode({'in': file.opened, 'path': file.path, **more}, errors='replace')}"


def named_file(file: TraceFile) -> str:
    """The trace as one word, for addresses that have two: directory and path."""
    return f"{file.opened}/{file.path}"


def work(file: TraceFile, kind: str, name: str) -> str | None:
    """The address of the timeline around the longest launch of what is called so; None where no address can hold
    the name."""
    if len(name) > _LONGEST_NAME:
        return None
    return to("timeline", file, of=f"{kind}:{name}")


def key_of(text: str) -> Key:
    """The event that ``kernel:123`` names.

    Raises:
        UserError: it names none.
    """
    kind, _, number = text.partition(":")
    known = [one for one in Kind if one == kind]
    if not known or not (number.isascii() and number.isdigit() and len(number) < _LONGEST_ID):
        raise UserError("no such event", where=text[:40])
    return Key(known[0], int(number))


@dataclass(frozen=True, slots=True)
class TimelineAddress:
    """What a timeline shows.

    Attributes:
        file: of which trace.
        begin, end: as they were typed, after the first event; empty for the trace's own.
        groups: of events; none is all.
        first: row to begin with.
        mark: an event to stand out, as `key_of` reads it; empty for none.
        of: ``kernel:NAME``: shows its longest launch instead of `begin` to `end`; empty for none.
    """

    file: TraceFile
    begin: str = ""
    end: str = ""
    groups: tuple[Group, ...] = ()
    first: int = 0
    mark: str = ""
    of: str = ""

    @classmethod
    def asked(cls, file: TraceFile, given: QueryParams) -> TimelineAddress:
        """What the parameters of a request say; of groups those that there are."""
        first = given.get("row", "")
        return cls(
            file,
            given.get("from", ""),
            given.get("to", ""),
            tuple(group for group in GROUPS if group in given.getlist("show")),
            int(first) if first.isascii() and first.isdigit() and len(first) < _LONGEST_ID else 0,
            given.get("mark", ""),
            given.get("of", ""),
        )

    def at(self, window: Window) -> str:
        """The address of the same rows of another time."""
        return replace(self, begin=str(window.begin), end="" if window.whole else str(window.end), of="").address()

    def from_row(self, first: int, window: Window) -> str:
        """The address of other rows of the same time."""
        return replace(self, first=first).at(window)

    def event(self, key: str, window: Window) -> str:
        """The address of an event's page, which leads back here."""
        return to("timeline/event", self.file, key=key, **{"from": window.begin, "to": window.end})

    def address(self) -> str:
        """This one."""
        pairs: Sequence[tuple[str, object]] = [
            ("from", self.begin),
            ("to", self.end),
            *(("show", group) for group in self.groups),
            ("row", self.first or ""),
            ("mark", self.mark),
            ("of", self.of),
        ]
        rest = urlencode([pair for pair in pairs if pair[1]], errors="replace")
        return to("timeline", self.file) + (f"&{rest}" if rest else "")
