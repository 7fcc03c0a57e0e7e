"""What the two sides of a transfer of weights say to each other: MessagePack, in the frames of `framing`.

publisher                                    receiver (each of them)
Hello  protocol, epoch, manifest, parameters ->
                                          <- Welcome  the same, as this side understood it
Frame  epoch, sequence, range, xxh3       -> \\  and the bytes by the transport, in the same order
                                          <- Began  so that a bucket that is late has a name
...                                          /
Commit epoch, count, rolling hash         ->
                                          <- Ack prepared   every byte is here and checked
Release                                   ->     all sides are prepared
                                          <- Ack committed  readable from now on
Abort, from either side, at any time: the epoch is over on all sides, and a new try is a new epoch.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from proctor.transfer.errors import Reason

PROTOCOL = 1


class Parameters(msgspec.Struct, frozen=True):
    """What both sides have to agree on before the first byte (SkyRL #2114: a half-right flag is a hang)."""

    bucket_bytes: int
    buffers: int
    align: int
    transport: str


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """Begins an epoch.

    Attributes:
        manifest: `Manifest.to_bytes`.
        patience: seconds that the publisher waits for any one thing. A receiver waits longer, so that the one who
            knows all sides names the one that is late.
        ticket: what this receiver needs to join the transport; the transport's own matter.
    """

    protocol: int
    epoch: int
    manifest_sha256: str
    manifest: bytes
    parameters: Parameters
    patience: float
    ticket: bytes = b""


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    """The receiver's name, and what it read: the publisher compares."""

    rank: str
    protocol: int
    epoch: int
    manifest_sha256: str
    parameters: Parameters


class Frame(msgspec.Struct, frozen=True, tag="frame"):
    """The next bucket: its place in the plan, and the XXH3-64 of its bytes (gaps are zero)."""

    epoch: int
    sequence: int
    start: int
    nbytes: int
    first: int
    count: int
    xxh3: int


class Began(msgspec.Struct, frozen=True, tag="began"):
    """The receiver has read a frame and takes its bytes."""

    epoch: int
    sequence: int


class Commit(msgspec.Struct, frozen=True, tag="commit"):
    """All buckets are on their way.

    Attributes:
        count: how many there were.
        rolling: XXH3-64 over manifest digest and every frame's sequence and checksum, in order: a checksum of bytes
            alone would pass when two tensors of one shape changed places.
    """

    epoch: int
    count: int
    rolling: int


class Release(msgspec.Struct, frozen=True, tag="release"):
    """All receivers are prepared: what came is readable."""

    epoch: int


class Ack(msgspec.Struct, frozen=True, tag="ack"):
    """See the table above."""

    epoch: int
    rank: str
    state: Literal["prepared", "committed"]


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """The epoch has failed at `rank`."""

    epoch: int
    rank: str
    reason: Reason
    message: str


ToReceiver = Hello | Frame | Commit | Release | Abort
ToPublisher = Welcome | Began | Ack | Abort
