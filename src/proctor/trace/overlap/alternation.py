"""Do filling a buffer and sending it take turns? With one buffer they must; with two they need not."""

from __future__ import annotations

from typing import NamedTuple

from proctor.trace.work.busy import Key

ENOUGH = 8
"""Fewer transfers than this show no pattern."""


class Turn(NamedTuple):
    """What fills the buffer."""

    view: str
    what: int | None


class Alternation:
    """Transfers, and what packs data between them, from work given in order of its starts.

    Attributes:
        transfers: how many.
        at_once: how often one began while the other ran.
        unpacked: transfers that follow another without any packing between them.
        fillers: what packs before every transfer but the first: names and streams.
        streams: on which transfers ran.
    """

    def __init__(self) -> None:
        self.transfers = 0
        self.at_once = 0
        self.unpacked = 0
        self.streams: set[Key] = set()
        self.name = ""
        self._always: set[Turn] | None = None
        self._between: set[Turn] = set()
        self._names: dict[Turn, str] = {}
        self._places: dict[Turn, set[Key]] = {}
        self._sent = self._filled = 0

    def pack(self, view: str, what: int | None, start: int, end: int, place: Key, name: str) -> None:
        """Something that may fill a buffer."""
        turn = Turn(view, what)
        self.at_once += start < self._sent
        self._filled = max(self._filled, end)
        self._between.add(turn)
        self._names.setdefault(turn, name)
        self._places.setdefault(turn, set()).add(place)

    def transfer(self, start: int, end: int, place: Key, name: str) -> None:
        """A transfer."""
        self.at_once += start < self._filled
        if self.transfers:
            self.unpacked += not self._between
            if self._between:
                self._always = set(self._between) if self._always is None else self._always & self._between
        self.transfers += 1
        self.name = self.name or name
        self.streams.add(place)
        self._between.clear()
        self._sent = max(self._sent, end)

    @property
    def fillers(self) -> list[tuple[str, set[Key]]]:
        """Names and streams of what packs between all transfers."""
        return [(self._names[turn], self._places[turn]) for turn in sorted(self._always or (), key=str)]
