"""What the supervisor and its child say to each other: MessagePack frames, each behind its length in four bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from socket import socket
from typing import Generic, TypeVar

import msgspec

from proctor.engines import news
from proctor.engines.base import EngineConfig
from proctor.rows import Request, Response, UserError

_LENGTH = struct.Struct(">I")
_MAX_FRAME = 1 << 30
RECEIVE_BYTES = 1 << 18


class Start(msgspec.Struct, frozen=True, tag="start"):
    """To the child, first of all: the engine to run, or only to check."""

    config: EngineConfig
    check_only: bool = False


class Work(msgspec.Struct, frozen=True, tag="work"):
    """To the child: one more request. The end of the connection is the end of the feed.

    Attributes:
        more: more requests of the same hand-out follow; the engine sees none of them before the last one is there, so
            that what is handed out at once can be taken at once.
    """

    request: Request
    more: bool = False


class Swap(msgspec.Struct, frozen=True, tag="swap"):
    """To the child, once every request has its answer: answer with another checkpoint from now on.

    See `proctor.engines.base.Engine.swap`.
    """

    config: EngineConfig
    weights: str = ""


class Checked(msgspec.Struct, frozen=True, tag="checked"):
    """From the child: the engine's own check found nothing wrong."""


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """From the child: the engine is ready. `versions` are those of its interpreter and of its own libraries."""

    seconds: float
    versions: dict[str, str] = {}


class Swapped(msgspec.Struct, frozen=True, tag="swapped"):
    """From the child: it answers with the other checkpoint; or with its own as before, if it says why it `refused`."""

    refused: str = ""


class Taken(msgspec.Struct, frozen=True, tag="taken"):
    """From the child: at this moment (monotonic seconds) the engine gets the `count` oldest requests of the feed."""

    count: int
    at: float


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """From the child: a response of this moment, and the tokens decoded since the last message that told of any."""

    response: Response
    at: float
    tokens: int = 0


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """From the child: tokens decoded since the last message that told of any."""

    tokens: int


class Compiling(msgspec.Struct, frozen=True, tag="compiling"):
    """From the child: compiling has begun, or ended, which shows no other progress."""

    began: bool


class News(msgspec.Struct, frozen=True, tag="news"):
    """From the child: what the engine tells, see `proctor.engines.news`."""

    news: news.News


class Broken(msgspec.Struct, frozen=True, tag="broken"):
    """From the child, its last word: an exception came out of the engine.

    Attributes:
        message: type and text in one line.
        exception: its type.
        out_of_memory: whether it says that memory ran out.
        crashed: whether it says that a process which the engine works with is dead.
        printed: length of the child's log before the exception's own traceback, in bytes.
        mistake: what, where and fix of a `UserError`.
    """

    message: str
    exception: str
    out_of_memory: bool = False
    crashed: bool = False
    printed: int | None = None
    mistake: tuple[str, str | None, str | None] | None = None

    def user_error(self) -> UserError | None:
        """The mistake as the exception it was."""
        if self.mistake is None:
            return None
        what, where, fix = self.mistake
        return UserError(what, where=where, fix=fix)


class Fallen(msgspec.Struct, frozen=True, tag="fallen"):
    """From the child, its last word: a process that the engine works with has ended.

    Attributes:
        name: what it is called.
        pid: its number.
        status: exit code, or the negative number of the signal.
    """

    name: str
    pid: int
    status: int


ToChild = Start | Work | Swap
FromChild = Checked | Loaded | Swapped | Taken | Answer | Progress | Compiling | News | Broken | Fallen

_encoder = msgspec.msgpack.Encoder()
Message = TypeVar("Message")


class ProtocolError(Exception):
    """What came in is not a message of this protocol."""


def pack(message: ToChild | FromChild) -> bytearray:
    """The message as a frame."""
    frame = bytearray(_LENGTH.size)
    _encoder.encode_into(message, frame, _LENGTH.size)
    _LENGTH.pack_into(frame, 0, len(frame) - _LENGTH.size)
    return frame


class Unpacker(Generic[Message]):
    """Cuts a stream of bytes into messages of one type."""

    def __init__(self, kind: object) -> None:
        self._decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(kind)
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete with `data`.

        Raises:
            ProtocolError: the bytes are no such message.
        """
        self._buffer += data
        messages: list[Message] = []
        start, end = 0, len(self._buffer)
        with memoryview(self._buffer) as view:
            while end - start >= _LENGTH.size:
                (size,) = _LENGTH.unpack_from(view, start)
                stop = start + _LENGTH.size + size
                if stop > end:
                    if size > _MAX_FRAME:
                        raise ProtocolError(f"a frame of {size} bytes")
                    break
                messages.append(self._decode(bytes(view[start + _LENGTH.size : stop])))
                start = stop
        del self._buffer[:start]
        return messages

    def _decode(self, body: bytes) -> Message:
        try:
            return self._decoder.decode(body)
        except msgspec.DecodeError as error:
            raise ProtocolError(str(error)) from None


def receive(line: socket) -> Iterator[ToChild]:
    """The child's messages, as they come in on its blocking socket, until the supervisor hangs up."""
    unpacker: Unpacker[ToChild] = Unpacker(ToChild)
    while data := line.recv(RECEIVE_BYTES):
        yield from unpacker.feed(data)
