"""The members of a tar archive, as they stand in it: headers are read in order, data is passed over, damage is told.

Nothing is ever extracted: names are only told. Read are ustar, GNU (long names) and pax headers. Behind a header whose
checksum is wrong the next sound one is looked for, block by block; what stood in between is unknown. Links and
sparse members (``tar -S``) are told with a fault: what they stand for is not in their data.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

from proctor.sources.streams import advance

BLOCK = tarfile.BLOCKSIZE
_ZEROS = bytes(BLOCK)
_MOST_EXTENDED = 1 << 20
_LARGEST = 1 << 42
_LONG_NAMES = {b"L", b"K"}
_PAX = {b"x", b"X"}
_PAX_GLOBAL = b"g"
_MAP_GOES_ON, _MAP_GOES_ON_AGAIN = 482, 504  # bytes of a GNU sparse header, and of a block that continues it
_SPARSE_NAME = "GNU.sparse.name"
_MARK = "sparse"
_LINK = "is a link, which is not followed: pack the file itself (tar --dereference --hard-dereference)"
_SPARSE = "is stored sparse, which is not read: pack it without tar's option -S"


class Member(NamedTuple):
    """A regular file, or a link.

    Attributes:
        name: its path in the archive.
        start: where its headers begin.
        data: where its data begins; the stream stands there.
        size: bytes of its data.
        fault: why its data is not what it stands for; None: it is.
    """

    name: str
    start: int
    data: int
    size: int
    fault: str | None = None


class Damage(NamedTuple):
    """Bytes that are no archive: from where on, and what is wrong with them."""

    start: int
    message: str


def members(
    stream: BinaryIO, start: int, end: int | None, digest: Callable[[bytes], object] | None = None
) -> Iterator[Member | Damage]:
    """The files and links of an archive whose headers begin at or behind `start`, in order, and the damage among them.

    Args:
        stream: the archive; may be read, forwards, while it is iterated over.
        start: where a header is.
        end: where to stop; None: at the archive's end.
        digest: gets the bytes of every header.

    Raises:
        OSError: the stream cannot be read for now.
    """
    try:
        yield from _Scan(stream, start, end, digest or _forget).members()
    except OSError as error:
        if type(error) is not OSError or error.errno is not None:
            raise
        yield Damage(stream.tell(), str(error))


def _forget(_header: bytes) -> None:
    pass


class _Scan:
    def __init__(self, stream: BinaryIO, start: int, end: int | None, digest: Callable[[bytes], object]) -> None:
        self._stream, self._at, self._end, self._digest = stream, start, end, digest
        self._extended: dict[str, str] = {}  # what a pax or GNU header says of the member that follows it
        self._start = start  # of the headers of that member

    def members(self) -> Iterator[Member | Damage]:
        ended = False  # by the mark of an archive's end; another archive may follow
        while self._end is None or self._at < self._end:
            header = self._block()
            if len(header) < BLOCK:
                if header or not ended:
                    yield Damage(self._at, "the archive ends without its end mark: it was probably cut off")
                return
            if header == _ZEROS:
                ended = True
                self._at += BLOCK
                self._start = self._at
                continue
            ended = False
            found = self._member(header)
            if found is None:
                continue
            yield found
            if isinstance(found, Damage):
                self._find_header()
            self._start, self._extended = self._at, {}

    def _block(self) -> bytes:
        return self._stream.read(BLOCK) if advance(self._stream, self._at) else b""

    def _member(self, header: bytes) -> Member | Damage | None:
        """What a header says; None if it is that of no regular file or link."""
        try:
            info = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            return Damage(self._at, f"no sound header: {error}")
        self._digest(header)
        data = self._at + BLOCK
        size = int(self._extended.get("size", info.size))
        if not 0 <= size < _LARGEST:
            return Damage(self._at, f"no sound header: a member of {size:,} bytes")
        kind = info.type
        if kind in _LONG_NAMES or kind in _PAX or kind == _PAX_GLOBAL:
            return self._extend(kind, size)
        is_link = info.islnk() or info.issym()
        if kind == tarfile.GNUTYPE_SPARSE:
            data = self._behind_sparse_map(header)
        has_data = info.isreg() or kind not in tarfile.SUPPORTED_TYPES
        self._at = data + (-(-size // BLOCK) * BLOCK if has_data else 0)
        if not info.isreg() and not is_link:
            self._start, self._extended = self._at, {}
            return None
        fault = _LINK if is_link else _SPARSE if kind == tarfile.GNUTYPE_SPARSE or _MARK in self._extended else None
        name = self._extended.get(_SPARSE_NAME) or self._extended.get("path", info.name)
        shown = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return Member(shown, self._start, data, 0 if is_link else size, fault)

    def _behind_sparse_map(self, header: bytes) -> int:
        """Where the data of a GNU sparse member begins: its map of holes may go on in blocks behind its header."""
        at, continued = self._at + BLOCK, header[_MAP_GOES_ON]
        while continued:
            block = self._stream.read(BLOCK)
            self._digest(block)
            at += BLOCK
            continued = len(block) == BLOCK and block[_MAP_GOES_ON_AGAIN]
        return at

    def _extend(self, kind: bytes, size: int) -> Damage | None:
        """Reads a header that is data: a name too long for a plain one, or pax records."""
        if size > _MOST_EXTENDED:
            return Damage(self._at, f"no sound header: an extension of {size:,} bytes")
        data = self._stream.read(size)
        self._digest(data)
        if kind == b"L":
            self._extended["path"] = data.rstrip(b"\0").decode("utf-8", "surrogateescape")
        elif kind in _PAX:
            try:
                self._extended.update(_pax_records(data))
            except ValueError:
                return Damage(self._at, "no sound header: malformed pax records")
        self._at += BLOCK + -(-size // BLOCK) * BLOCK
        return None

    def _find_header(self) -> None:
        """Goes on to the next sound header, or to the end."""
        while True:
            self._at += BLOCK
            header = self._block()
            if len(header) < BLOCK or header == _ZEROS or _is_sound(header):
                return


def _is_sound(header: bytes) -> bool:
    # The magic, too: a block of data has a fitting checksum by chance now and then.
    try:
        tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return header[257:262] == b"ustar"


def _pax_records(data: bytes) -> Iterator[tuple[str, str]]:
    """The path, the size, and what marks a sparse member among the records ``length key=value\\n``.

    Raises:
        ValueError: they are malformed.
    """
    while data:
        length, space, _ = data.partition(b" ")
        record, data = data[len(length) + len(space) : int(length)], data[int(length) :]
        key, equals, value = record.partition(b"=")
        if not equals or not value.endswith(b"\n") or int(length) < 5:
            raise ValueError("no record")
        if key in (b"path", b"size"):
            text = value[:-1].decode("utf-8", "surrogateescape")
            yield key.decode(), str(int(text)) if key == b"size" else text
        elif key.startswith((b"GNU.sparse.", b"SCHILY.realsize")):
            yield _MARK, ""
            if key == _SPARSE_NAME.encode():
                yield _SPARSE_NAME, value[:-1].decode("utf-8", "surrogateescape")
