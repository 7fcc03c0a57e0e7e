from __future__ import annotations

from typing import Any

import msgspec
import pytest

from proctor.transfer.devices.cpu import CpuStream
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.kv import wire
from proctor.transfer.kv.block import cut, write
from proctor.transfer.kv.inbox import Inbox, Open
from proctor.transfer.kv.rooms import Rooms
from proctor.transfer.tensors import plan
from tests.transfer.kv.samples import LAYOUT, block, same

REGION = wire.Region("/proc/1/fd/2", b"n" * 16, 4, 1024)
MESSAGES: list[Any] = [
    wire.Greet(wire.PROTOCOL, LAYOUT, LAYOUT.digest, "decode", "host", 7),
    wire.Welcome("prefill", "host", 8, 30.0, LAYOUT.digest, REGION),
    wire.Refusal("prefill", Reason.MISMATCH, "why"),
    wire.Fetch("a", True),
    wire.Offer("a", 1, b"manifest", "digest", (1, 2), 2, (wire.Piece(0, 1, 256, 99),), False),
    wire.Done("a", 1),
    wire.Freed("a", 1),
    wire.Beat(("a", "b")),
    wire.Alive(),
    wire.Cancel("a", 1, Reason.LATE, "why"),
    wire.Gone("a", 1, "prefill", Reason.EXPIRED, "why"),
    wire.Leave(),
    wire.Bye(Reason.CANCELLED, "why"),
]
DECODER: Any = msgspec.msgpack.Decoder(
    wire.Greet | wire.Welcome | wire.Refusal | wire.Fetch | wire.Offer | wire.Done | wire.Freed | wire.Beat | wire.Alive
    | wire.Cancel | wire.Gone | wire.Leave | wire.Bye
)  # fmt: skip


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_as_it_was_sent_or_not_at_all(message: Any):
    frames = wire.sealed(message)
    assert wire.opened(frames, DECODER) == message
    for which, frame in enumerate(frames):
        for place in range(len(frame)):
            changed = frame[:place] + bytes([frame[place] ^ 1]) + frame[place + 1 :]
            for damaged in (changed, frame[:place]):
                with pytest.raises(TransferError) as corrupt:
                    wire.opened([damaged if number == which else one for number, one in enumerate(frames)], DECODER)
                assert corrupt.value.reason is Reason.CORRUPT


def test_what_is_no_message_is_corrupt():
    for frames in ([], [b""], [b"", b""], wire.sealed(MESSAGES[0])[:1]):
        with pytest.raises(TransferError):
            wire.opened(frames, DECODER)
    with pytest.raises(TransferError, match="no message of this protocol"):
        wire.opened(wire.sealed(wire.Done("a", 1)), msgspec.msgpack.Decoder(wire.Fetch | wire.Leave))


def offer(request: str, lease: int) -> tuple[wire.Offer, list[bytes]]:
    made = block(request)
    parts = cut(plan(made.tensors), 1024)
    room, pieces, beside = Rooms().take(1024), [], []
    for number, piece in enumerate(parts.pieces):
        pieces.append(wire.Piece(number, 1, piece.nbytes, write(parts, piece, room, CpuStream())))
        beside.append(bytes(room[: piece.nbytes].numpy()))
    manifest = parts.manifest
    return (
        wire.Offer(
            request, lease, manifest.to_bytes(), manifest.digest, made.tokens, made.position, tuple(pieces), True
        ),
        beside,
    )


def test_only_the_word_about_this_very_lease_counts():
    said: list[Any] = []
    inbox = Inbox(LAYOUT, lambda message: said.append(message) or True)  # type: ignore[func-returns-value]
    wanted = Open("a", "prefill")
    inbox.ask(wanted)
    inbox.freed(wire.Freed("a", 3))  # of an older try, before anything came
    assert not wanted.over.done()
    inbox.offered(*offer("a", 5))
    assert said == [wire.Fetch("a", True), wire.Done("a", 5)]
    inbox.freed(wire.Freed("a", 4))
    inbox.gone(wire.Gone("a", 4, "prefill", Reason.EXPIRED, "another"))
    assert not wanted.over.done()
    inbox.offered(*offer("a", 5))  # twice
    assert len(said) == 2
    inbox.freed(wire.Freed("a", 5))
    wanted.over.wait(0)
    assert wanted.block is not None
    assert same(wanted.block, block("a"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"manifest": b"nonsense"}, Reason.MISMATCH),
        ({"manifest_sha256": "0" * 64}, Reason.CORRUPT),
        ({"pieces": ()}, Reason.CORRUPT),
        ({"beside": False}, Reason.MISMATCH),
    ],
)
def test_an_offer_that_does_not_add_up_is_given_back(change: dict[str, Any], reason: Reason):
    said: list[Any] = []
    inbox = Inbox(LAYOUT, lambda message: said.append(message) or True)  # type: ignore[func-returns-value]
    wanted = Open("a", "prefill")
    inbox.ask(wanted)
    made, beside = offer("a", 5)
    inbox.offered(msgspec.structs.replace(made, **change), beside)
    with pytest.raises(TransferError) as failed:
        wanted.over.wait(0)
    assert failed.value.reason is reason
    assert said[-1] == wire.Cancel("a", 5, reason, said[-1].message)
    assert inbox.requests == ()
