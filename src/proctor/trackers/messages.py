"""What the driver and a tracker's process say to each other: one JSON object a line, over pipes."""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.trackers.entries import Entry


class Open(msgspec.Struct, frozen=True, tag=True):
    """First message to the process.

    Attributes:
        kind: of the tracker, as in the spec.
        settings: the tracker's part of the spec.
        key: names the run there.
        run_name: what it is called there.
        directory: for trackers that write files, else None.
    """

    kind: str
    settings: dict[str, Any]
    key: str
    run_name: str
    directory: str | None


class Batch(msgspec.Struct, frozen=True, tag=True):
    """Entries to send, in order."""

    entries: list[Entry]


class Finish(msgspec.Struct, frozen=True, tag=True):
    """Nothing more comes. `ok` is whether the run went well; None: it is not known here."""

    ok: bool | None


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The tracker is open."""


class Taken(msgspec.Struct, frozen=True, tag=True):
    """A batch is with the tracker's library.

    Attributes:
        arrived: whether it, and all before it, is known to be where it belongs.
        refused: entries that the tracker will never take, with its reason.
    """

    upto: int
    arrived: bool
    refused: dict[int, str] = {}


class Finished(msgspec.Struct, frozen=True, tag=True):
    """Everything has arrived, and the tracker is closed."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The tracker's library raised. The process is of no further use."""

    reason: str


Request = Open | Batch | Finish
Reply = Ready | Taken | Finished | Failed
