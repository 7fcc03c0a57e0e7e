"""What the two sides of key-value shipping say to each other.

receiver                                     sender
Greet   protocol, layout, who            ->
                                          <- Welcome  who, where the shared memory is   (or Refusal: nothing follows)
Fetch   request                          ->
                                          <- Offer    lease, manifest, pieces           (once the block is there)
Done    request, lease: all bytes checked ->
                                          <- Freed    the lease still held: the block is the receiver's
Beat    requests it wants or reads       ->  extends their leases
                                          <- Alive
Cancel  request, reason                  ->                                             (at any time)
                                          <- Gone     request, reason                   (at any time)
Leave                                    ->
                                          <- Bye

A ZMQ message has these frames: XXH3-64 of the body, body (MessagePack), and behind an Offer its pieces if they do not
lie in shared memory. Without the checksum one flipped bit could make a valid message about another request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec
import xxhash

from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.kv.layout import Layout

PROTOCOL = 1


class Greet(msgspec.Struct, frozen=True, tag="greet"):
    """First message of a receiver."""

    protocol: int
    layout: Layout
    layout_sha256: str
    rank: str
    host: str
    pid: int


class Region(msgspec.Struct, frozen=True):
    """The sender's shared memory: `nonce` stands in its first bytes, so nobody attaches a stranger's."""

    path: str
    nonce: bytes
    slots: int
    slot_bytes: int


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    """The sender's answer to a greeting that it agrees with."""

    rank: str
    host: str
    pid: int
    lease_seconds: float
    layout_sha256: str
    region: Region


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    """The sender wants nothing to do with this peer, or can no longer make sense of it."""

    rank: str
    reason: Reason
    message: str


class Fetch(msgspec.Struct, frozen=True, tag="fetch"):
    """Asks for a block, which may not be there yet; `beside`: its pieces are to come beside the offer."""

    request: str
    beside: bool


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """A range of a block's bytes, in the order of the block: in which slot, of which generation, and its XXH3-64."""

    slot: int
    generation: int
    nbytes: int
    xxh3: int


class Offer(msgspec.Struct, frozen=True, tag="offer"):
    """A block is there; `tokens` and `position` are those of `proctor.transfer.kv.block.Block`."""

    request: str
    lease: int
    manifest: bytes
    manifest_sha256: str
    tokens: tuple[int, ...]
    position: int
    pieces: tuple[Piece, ...]
    beside: bool


class Done(msgspec.Struct, frozen=True, tag="done"):
    """Every byte has been copied and checked."""

    request: str
    lease: int


class Freed(msgspec.Struct, frozen=True, tag="freed"):
    """The lease held until `Done` came: what was copied is the block."""

    request: str
    lease: int


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """The receiver lives, and still wants these."""

    requests: tuple[str, ...]


class Alive(msgspec.Struct, frozen=True, tag="alive"):
    """The sender lives."""


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """The receiver no longer wants it, and why; `lease` is 0 where it has seen no offer."""

    request: str
    lease: int
    reason: Reason
    message: str


class Gone(msgspec.Struct, frozen=True, tag="gone"):
    """The request has failed; `lease` is 0 where there never was one."""

    request: str
    lease: int
    rank: str
    reason: Reason
    message: str


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """The receiver ends."""


class Bye(msgspec.Struct, frozen=True, tag="bye"):
    """The sender ends."""

    reason: Reason
    message: str


ToSender = Greet | Fetch | Done | Beat | Cancel | Leave
ToReceiver = Welcome | Refusal | Offer | Freed | Alive | Gone | Bye
Message = TypeVar("Message")

_ENCODER = msgspec.msgpack.Encoder()


def sealed(message: ToSender | ToReceiver) -> list[bytes]:
    """The first two frames of a message."""
    body = _ENCODER.encode(message)
    return [xxhash.xxh3_64_digest(body), body]


def opened(frames: Sequence[bytes], decoder: msgspec.msgpack.Decoder[Message]) -> Message:
    """Reads what came.

    Raises:
        TransferError: ``CORRUPT``: it is cut short, changed, or no message at all.
    """
    if len(frames) < 2 or xxhash.xxh3_64_digest(frames[1]) != frames[0]:
        raise TransferError(Reason.CORRUPT, "a control message is not what was sent")
    try:
        return decoder.decode(frames[1])
    except msgspec.DecodeError as error:
        raise TransferError(Reason.CORRUPT, f"no message of this protocol: {error}") from None
