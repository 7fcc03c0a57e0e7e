"""Reads files below a URL, in object storage or on a web server, by ranges and with patience.

A range is fetched in pieces. Whatever passes (a 5xx, a cut or silent connection, a body that ends early or trickles) is
tried again with growing, random pauses, and a try goes on where the one before stopped: what has come is not fetched
twice. The limits are those of `StorageOptions`, and they hold for a piece, not for a file, however large it is.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from time import monotonic
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError, NotSupportedError, PreconditionError
from tenacity import RetryCallState, Retrying, retry_if_exception_type, sleep_using_event, wait_random_exponential

from proctor.rows import UserError
from proctor.storage.connect import Connection, StorageOptions, object_store, refuse_credentials
from proctor.storage.replies import NO_CREDENTIALS, is_broken, lacks_credentials, status_of, what_happened

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta

T = TypeVar("T")
Reason = Literal["missing", "denied", "failed"]

PIECE_BYTES = 16 << 20
"""Most bytes that one request asks for."""

_PASSING_STATUS = frozenset({408, 425, 429})
_MODIFIED = "modified "
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_ASK_FOR_ACCESS = "check the credentials and what they may read (a store may also say so of what is not there)"


class RemoteError(Exception):
    """A file that cannot be had.

    Attributes:
        reason: ``missing``: it is not there; ``denied``: it may not be read; ``failed``: anything that may pass.
        message: one line: the URL, what happened, and what to do. Never holds a query string, which may be signed.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    def __reduce__(self) -> tuple[object, ...]:
        return (RemoteError, (self.reason, self.message))


class Stat(NamedTuple):
    """What a store says of a file: its bytes, and a tag that changes whenever its content does."""

    size: int
    tag: str


class _PassingError(Exception):
    """A fault that the next try may not meet; the text says what it was."""


@dataclass(slots=True)
class _Progress:
    """What has come of a piece, over all tries, and when the last of it came.

    Attributes:
        target: where its bytes go.
        received: how many of them have come.
        at: when the last of them came.
        given_up: set by whoever does not wait for it any more.
    """

    target: memoryview = field(default_factory=lambda: memoryview(b""))
    received: int = 0
    at: float = field(default_factory=monotonic)
    given_up: threading.Event = field(default_factory=threading.Event)

    @property
    def missing(self) -> int:
        """How many bytes are still to come."""
        return len(self.target) - self.received

    def add(self, chunk: bytes) -> None:
        """Takes in what has come, but never more than was asked for."""
        kept = min(len(chunk), self.missing)
        self.target[self.received : self.received + kept] = memoryview(chunk)[:kept]
        self.received += kept
        self.at = monotonic()


@dataclass(frozen=True)
class Remote:
    """The files below a URL. Small, picklable and hashable; each process connects when it first reads.

    Attributes:
        url: ``s3://bucket/folder``, ``https://host/folder`` ... as in `storage.connect`.
        options: how the store is reached.
    """

    url: str
    options: StorageOptions = field(default_factory=StorageOptions)

    def check(self) -> None:
        """Refuses a URL that cannot be read from; sends nothing.

        Raises:
            UserError: says what is wrong with it.
        """
        refuse_credentials(self.url)
        parts = urlsplit(self.url)
        if parts.scheme in ("http", "https") and (parts.query or parts.fragment):
            where, part = self.url.partition("?")[0].partition("#")[0], "query" if parts.query else "fragment"
            raise UserError(f"a URL with a {part} cannot have files below it", where=where, fix=f"leave the {part} out")
        _connect(self.url, self.options)

    def url_of(self, name: str) -> str:
        """The URL of a file."""
        return f"{self.url.rstrip('/')}/{name}"

    @property
    def identity(self) -> str:
        """The URL, and which server it is reached at where that is not the provider's own."""
        endpoints = [self.options.endpoint, *(os.environ.get(name) for name in _ENDPOINTS)]
        return " ".join([self.url, *(endpoint for endpoint in endpoints if endpoint)][:2])

    def stat(self, name: str) -> Stat:
        """Size and tag of a file.

        Raises:
            RemoteError: it cannot be had.
        """

        def ask() -> Stat:
            store, prefix = _connect(self.url, self.options)
            meta = obstore.head(store, _join(prefix, name))
            return Stat(meta["size"], _tag(meta))

        return self._patiently(name, ask, _Progress())

    def read(self, name: str, start: int, end: int, tag: str | None = None) -> bytes:
        """The bytes ``start .. end - 1`` of a file; with a `tag`, only if it still is the file that had it.

        Raises:
            RemoteError: they cannot be had, also because the file is shorter or has changed.
        """
        return b"".join(self.pieces(name, start, end, tag))

    def pieces(self, name: str, start: int, end: int, tag: str | None = None) -> Iterator[bytearray]:
        """Like `read`, in pieces of `PIECE_BYTES`, so that not all of it has to fit into memory."""
        for at in range(start, end, PIECE_BYTES):
            piece = bytearray(min(end - at, PIECE_BYTES))
            self.read_into(name, at, memoryview(piece), tag)
            yield piece

    def read_into(
        self, name: str, start: int, target: memoryview, tag: str | None = None, given_up: threading.Event | None = None
    ) -> None:
        """Fills `target` with the bytes from `start` on, by one request (more only after a fault).

        Another thread that sets `given_up` ends it soon, whatever the server does.

        Raises:
            RemoteError: as for `read`.
        """
        progress = _Progress(target, given_up=given_up or threading.Event())
        self._patiently(name, lambda: self._receive(name, start, tag, progress), progress)

    def names(self) -> list[str]:
        """Names of all files below the URL. None on a web server, which has no common way to list them.

        Raises:
            RemoteError: they cannot be listed.
        """
        if urlsplit(self.url).scheme in ("http", "https"):
            return []

        def ask() -> list[str]:
            store, prefix = _connect(self.url, self.options)
            paths = (meta["path"] for batch in obstore.list(store, prefix or None) for meta in batch)
            return [path.removeprefix(prefix).lstrip("/") for path in paths]

        return self._patiently("", ask, _Progress())

    def _receive(self, name: str, start: int, tag: str | None, progress: _Progress) -> None:
        """One try: adds what comes of the piece to what has come of it before."""
        seconds = 2 * self.options.read_seconds
        limit = monotonic() + seconds
        store, prefix = _connect(self.url, self.options)
        options: GetOptions = {"range": (start + progress.received, start + len(progress.target))}
        if tag is not None and tag.startswith('"'):
            options["if_match"] = tag
        reply = obstore.get(store, _join(prefix, name), options=options)
        if tag is not None and _is_other(reply.meta, tag):
            raise PreconditionError("another tag")  # a server that does not know If-Match
        for chunk in reply.stream(min_chunk_size=1):
            progress.add(chunk)
            if progress.missing and (progress.at > limit or progress.given_up.is_set()):
                what = f"{progress.received:,} of {len(progress.target):,} bytes after {seconds:g} s"
                raise _PassingError(what)
        if progress.missing:
            raise _PassingError(f"the reply ended after {progress.received:,} of {len(progress.target):,} bytes")

    def _patiently(self, name: str, ask: Callable[[], T], progress: _Progress) -> T:
        """Asks until there is an answer, a fault that will not pass, or no patience left."""

        def ask_once() -> T:
            try:
                return ask()
            except (BaseError, OSError, ValueError) as error:
                raise self._sorted(name, error) from None

        def stop(state: RetryCallState) -> bool:
            silent = monotonic() - progress.at > self.options.retry_seconds
            return silent or state.attempt_number >= self.options.attempts or progress.given_up.is_set()

        tries = Retrying(
            retry=retry_if_exception_type(_PassingError),
            wait=wait_random_exponential(multiplier=0.2, max=15),
            stop=stop,
            sleep=sleep_using_event(progress.given_up),
            reraise=True,
        )
        try:
            return tries(ask_once)
        except _PassingError as error:
            count = tries.statistics["attempt_number"]
            told = f"{self.url_of(name)}: {error} ({count} {'try' if count == 1 else 'tries'}); try again later"
            raise RemoteError("failed", told) from None

    def _sorted(self, name: str, error: Exception) -> RemoteError | _PassingError:
        """Sorts an error of obstore by what can be done about it."""
        url, what, status = self.url_of(name), what_happened(error), status_of(error)
        if lacks_credentials(error):
            return RemoteError("denied", f"{url}: {NO_CREDENTIALS}")
        if isinstance(error, FileNotFoundError) or status == 404:
            return RemoteError("missing", f"{url}: not there ({what})")
        if status in (401, 403):
            return RemoteError("denied", f"{url}: access denied ({what}); {_ASK_FOR_ACCESS}")
        if isinstance(error, PreconditionError):
            return RemoteError("failed", f"{url}: was replaced while it was read; try again later")
        if isinstance(error, NotSupportedError):
            return RemoteError("failed", f"{url}: the server does not serve ranges of files; use one that does")
        if status is None and not is_broken(error):
            return RemoteError("failed", f"{url}: {what}")
        if status is not None and status < 500 and status not in _PASSING_STATUS:
            return RemoteError("failed", f"{url}: the server refused it ({what})")
        return _PassingError(what)


@functools.lru_cache(maxsize=16)
def _connect(url: str, options: StorageOptions) -> Connection:
    # One try a request: obstore would try again on its own, the whole of it times the tries made here.
    return object_store(url, replace(options, attempts=1))


def _tag(meta: ObjectMeta) -> str:
    """The store's tag for a state of a file; the time of its last change where there is none."""
    return meta["e_tag"] or _MODIFIED + meta["last_modified"].isoformat()


def _is_other(meta: ObjectMeta, tag: str) -> bool:
    """Whether a reply is of another state of the file than the one with `tag`, as far as the reply says."""
    told = meta["e_tag"] is not None or tag.startswith(_MODIFIED)
    return told and _tag(meta) != tag


def _join(prefix: str, name: str) -> str:
    plain = str(PurePosixPath(name))  # stores take no "./" and no "//"
    return f"{prefix}/{plain}" if prefix else plain
