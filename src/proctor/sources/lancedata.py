"""Lance data sets as a source of rows, read through the package `pylance` (the extra ``proctor[lance]``).

Ids come from the manifest: a row's id is its position among the rows that are not deleted, fragment after fragment, in
one version of the data set, which a run is pinned to. Rows are taken by position, so a group costs its own rows only.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import xxhash
from pyroaring import BitMap64

from proctor.rows import ErrorKind, Failure, UserError
from proctor.sources.base import BLOCK_BYTES, ReadGroup
from proctor.sources.blocks import BlockShape
from proctor.sources.files import DataFolder, LocalFolder, RemoteFolder, ids_between
from proctor.sources.planning import Extent, plan_groups
from proctor.sources.segments import Segment, blocks_of, lost, nullable

if TYPE_CHECKING:
    from proctor.storage.connect import StorageOptions

_EXTENT_ROWS = 1024
_USUAL_BYTES = 1024
_CACHE_BYTES = 64 << 20
_PLACES_IN_CODE = re.compile(r",? ?/\S+\.rs:\d+:\d+")
_PASSING = re.compile(
    r"Generic (?!LocalFileSystem)\w+ error|[Pp]ermission denied|[Tt]oo many open files|[Tt]imed? ?out"
)
_NAMES_OF_OPTIONS = {"s3": "aws", "gs": "google", "az": "azure"}

Options = tuple[tuple[str, str], ...]


class LanceSource:
    """Rows of a Lance data set. Implements `base.Source`.

    Args:
        path: the data set's directory or URL (``s3://``, ``gs://``, ``az://``).
        version: which version of it; None: the latest one now.
        images: columns that hold images.
        storage: how object storage is reached, for a URL.

    Raises:
        UserError: pylance is not installed, or there is no such data set or version.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        version: int | None = None,
        images: Sequence[str] = (),
        storage: StorageOptions | None = None,
    ) -> None:
        self._uri, self._folder, self._options = _place(str(path), storage)
        try:
            opened = _open(self._uri, version, self._options)
            self._version = int(opened.version)
            fragments = [
                (fragment.count_rows(), [(file.path, file.file_size_bytes) for file in fragment.data_files()])
                for fragment in opened.get_fragments()
            ]
        except (OSError, ValueError, RuntimeError) as error:
            raise UserError(_line(error), where=str(path)) from None
        self._shape = BlockShape(nullable(opened.schema), tuple(images), "lance_", str(path))
        self._extents: list[list[Extent]] = []
        self._rows = 0
        for count, files in fragments:
            size = sum(file_size or 0 for _, file_size in files) or count * _USUAL_BYTES
            self._extents.append(list(_pieces(self._rows, count, size)))
            self._rows += count
        self._fingerprint = xxhash.xxh3_128_hexdigest(f"{self._version} {fragments}".encode())

    def expected(self) -> BitMap64:
        """All row ids, ``0 .. n-1``, as the manifest counts them."""
        return ids_between(0, self._rows)

    def columns(self) -> pa.Schema:
        """The data set's columns; image columns as `cells.IMAGE` or `cells.IMAGES`."""
        return self._shape.columns

    def fingerprint(self) -> str:
        """Hash of the version, and of the names, sizes and row counts of its files, which are never written again."""
        return self._fingerprint

    def groups(self, todo: BitMap64, max_rows: int, max_bytes: int = BLOCK_BYTES) -> list[ReadGroup]:
        """Splits the wanted rows by fragment, number and mean size. Opens no file."""
        return list(plan_groups(todo, self._extents, max_rows, max_bytes))

    def read(self, group: ReadGroup) -> Iterator[pa.Table]:
        """Yields the group's rows in order, as blocks of at most about `BLOCK_BYTES`."""
        extent = self._extents[group.shard][0]
        step = max(1, int(BLOCK_BYTES / max(1.0, extent.row_bytes)))
        segments = self._segments(list(group.row_ids), step)
        yield from blocks_of(self._shape, segments, lambda row_id: f"row {row_id}", self._folder)

    def _segments(self, wanted: list[int], step: int) -> Iterator[Segment]:
        for start in range(0, len(wanted), step):
            yield from self._taken(wanted[start : start + step])

    def _taken(self, ids: list[int]) -> Iterator[Segment]:
        """Rows by position; what cannot be read is looked for by halves, so that it takes no neighbour along."""
        schema = self._shape.file_schema
        try:
            table = _pinned(self._uri, self._version, self._options).take(ids)
            if table.num_rows != len(ids):
                raise ValueError(f"{table.num_rows} rows for {len(ids)} positions")
            yield Segment(ids, pa.table(table.columns, schema=schema))
        except Exception as error:
            failure = _failure(error)
            if len(ids) == 1 or failure.kind is not ErrorKind.READ_CORRUPT:
                yield lost(schema, ids, failure)
                return
            half = len(ids) // 2
            yield from self._taken(ids[:half])
            yield from self._taken(ids[half:])


@functools.lru_cache(maxsize=4)
def _pinned(uri: str, version: int, options: Options) -> Any:
    """A version of a data set, kept open in the process."""
    return _open(uri, version, options)


def _open(uri: str, version: int | None, options: Options) -> Any:
    try:
        import lance
    except ImportError as error:
        fix = "pip install 'proctor[lance]'"
        raise UserError(f"Lance data sets need the package pylance: {error}", where="source.kind", fix=fix) from None
    return lance.dataset(uri, version=version, storage_options=dict(options), metadata_cache_size_bytes=_CACHE_BYTES)


def _place(path: str, storage: StorageOptions | None) -> tuple[str, DataFolder, Options]:
    """The data set as Lance is told of it, its folder, and Lance's settings for its store."""
    if path.startswith("file:///"):
        path = unquote(urlsplit(path).path)
    if "://" not in path:
        local = Path(path).absolute()
        if not local.is_dir():
            raise UserError("no such directory", where=path, fix="give the data set's directory")
        return str(local), LocalFolder(local), ()
    from proctor.storage.connect import DEFAULT_OPTIONS
    from proctor.storage.remote import Remote

    given = storage or DEFAULT_OPTIONS
    remote = Remote(path.rstrip("/"), given)
    remote.check()
    scheme = path.partition("://")[0].removesuffix("a") if path.startswith("s3a:") else path.partition("://")[0]
    if scheme not in _NAMES_OF_OPTIONS:
        known = ", ".join(f"{name}://" for name in _NAMES_OF_OPTIONS)
        raise UserError(f"Lance data sets are not read from {scheme}://", where=path, fix=f"one of {known}")
    name = _NAMES_OF_OPTIONS[scheme]
    options = {
        f"{name}_endpoint": given.endpoint,
        f"{name}_region": given.region if scheme == "s3" else None,
        f"{name}_skip_signature": "true" if given.anonymous else None,
        "allow_http": "true" if (given.endpoint or "").startswith("http://") else None,
        "client_max_retries": str(given.attempts - 1),
        "client_retry_timeout": str(int(given.retry_seconds)),
    }
    uri = f"{scheme}://{path.partition('://')[2]}"
    return uri, RemoteFolder(remote), tuple((key, value) for key, value in options.items() if value is not None)


def _pieces(first: int, count: int, size: int) -> Iterator[Extent]:
    for start in range(0, count, _EXTENT_ROWS):
        rows = min(_EXTENT_ROWS, count - start)
        yield Extent(first + start, rows, size * rows // count)


def _failure(error: Exception) -> Failure:
    text = _line(error)
    if "not found" in text.lower():
        return Failure(ErrorKind.READ_MISSING, text)
    passing = _PASSING.search(text) is not None or isinstance(error, MemoryError)
    return Failure(ErrorKind.READ_FAILED if passing else ErrorKind.READ_CORRUPT, text)


def _line(error: Exception) -> str:
    """What Lance says, without the places in its own code."""
    return " ".join(_PLACES_IN_CODE.sub("", str(error)).split())[:300] or type(error).__name__
