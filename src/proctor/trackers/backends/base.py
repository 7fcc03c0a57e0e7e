"""What every tracker's library is made to look like."""

from __future__ import annotations

from typing import Protocol

from proctor.trackers.entries import Entry


class RefusedError(Exception):
    """The tracker will never take this, however often it is tried."""


class Backend(Protocol):
    """A run at a tracker. Made by `opened` of its module; any call may raise, block or never return."""

    def send(self, entries: list[Entry]) -> bool:
        """Hands entries over.

        Returns:
            Whether they, and all before, are known to be where they belong.

        Raises:
            RefusedError: the tracker takes one of them under no circumstances.
        """

    def finish(self, ok: bool | None) -> None:
        """Waits until everything is where it belongs, and closes the run (`ok`: whether it went well)."""
