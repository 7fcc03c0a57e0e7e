"""A checkpoint's files, found and checked: which tensor lies where in which of them, before the first byte is read."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, final

from typing_extensions import override

from proctor.rows import UserError
from proctor.storage.connect import StorageOptions
from proctor.transfer.closing import Closing
from proctor.transfer.manifest import Bucket, Manifest, lay_out
from proctor.transfer.safetensors import INDEX, LENGTH_BYTES, SINGLE, Stored, header_bytes, parse_header, parse_index
from proctor.transfer.sources import Place, Source, place_of, read_all

_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth", "model.pt", "pytorch_model.pt")
_BESIDE = (".json", ".txt", ".model", ".jinja", ".tiktoken", ".py")
"""Ends of names of the files that decide on answers together with the tensors."""
_COMMON = (
    "added_tokens.json", "chat_template.jinja", "chat_template.json", "config.json", "generation_config.json",
    "merges.txt", "preprocessor_config.json", "processor_config.json", "special_tokens_map.json", "tokenizer.json",
    "tokenizer.model", "tokenizer_config.json", "video_preprocessor_config.json", "vocab.json", "vocab.txt",
)  # fmt: skip
"""Looked for one by one where files cannot be listed."""
_FIRST_BYTES = 64 << 10
"""Asked for at once: most headers are shorter, and one request less is 50 ms less in object storage."""


class Piece(NamedTuple):
    """Bytes of a bucket that lie in one file one behind the other.

    Attributes:
        source: index into `Checkpoint.sources`.
        start: place in the file.
        ranges: where they go in the bucket: start and stop, in the file's order.
    """

    source: int
    start: int
    ranges: list[tuple[int, int]]


@final
class Checkpoint(Closing):
    """The tensors of one checkpoint, in files that are open. As a context manager they are closed at the end.

    Made by `open_checkpoint`.

    Attributes:
        location: path or URL.
        readers: how many threads are worth reading with.
        manifest: tensors in the order of their names, whatever files they are in.
        sources: the files with tensors.
        files: content of the small files beside them, by name.
        stamps: `Source.stamp` of every file of both kinds, by name.
        opened_at: seconds since the epoch, before the first file was opened.
    """

    def __init__(
        self,
        place: Place,
        location: str,
        shards: Sequence[tuple[Source, Sequence[Stored]]],
        files: Mapping[str, bytes],
        stamps: Mapping[str, str],
        opened: ExitStack,
        opened_at: float,
    ) -> None:
        self.opened_at = opened_at
        self.location, self.readers = location, place.readers
        self.files, self.stamps = files, stamps
        self.sources = [source for source, _ in shards]
        placed = sorted(
            ((tensor, index) for index, (_, tensors) in enumerate(shards) for tensor in tensors),
            key=lambda pair: pair[0].name,
        )
        self._placed = placed
        self.manifest: Manifest = lay_out((tensor.name, tensor.dtype, tensor.shape) for tensor, _ in placed)
        self._opened = opened

    def pieces(self, bucket: Bucket) -> Iterator[Piece]:
        """What to read for a bucket: neighbours in a file in one piece."""
        piece: Piece | None = None
        end = 0
        for index in range(bucket.first, bucket.first + bucket.count):
            entry, (tensor, source) = self.manifest.entries[index], self._placed[index]
            if not entry.nbytes:
                continue
            start, stop = max(bucket.start, entry.offset), min(bucket.stop, entry.end)
            at = tensor.start + start - entry.offset
            if piece is None or piece.source != source or at != end:
                if piece is not None:
                    yield piece
                piece = Piece(source, at, [])
            piece.ranges.append((start - bucket.start, stop - bucket.start))
            end = at + stop - start
        if piece is not None:
            yield piece

    def check(self) -> None:
        """Raises: TransferError: a file with tensors has changed since it was opened."""
        for source in self.sources:
            source.check()

    @override
    def close(self) -> None:
        """Closes its files."""
        self._opened.close()


def open_checkpoint(path: str, options: StorageOptions | None = None) -> Checkpoint:
    """Opens a checkpoint and checks everything that can be checked without reading its tensors.

    Args:
        path: a folder, or one safetensors file; local or a URL.
        options: how object storage is reached.

    Raises:
        UserError: there is none, it is pickled, a header or the index is damaged, or they contradict each other.
        TransferError: storage fails, or a file changes meanwhile.
    """
    opened_at = time.time()
    place, single = _find(path, options)
    with ExitStack() as opened:
        shards, stamps = _shards(place, single, opened)
        _refuse_twice(shards)
        files = _beside(place, stamps)
        return Checkpoint(place, path, shards, files, stamps, opened.pop_all(), opened_at)


def stamps_of(path: str, options: StorageOptions | None = None) -> dict[str, str]:
    """`Checkpoint.stamps`, without reading anything but an index.

    Raises:
        UserError: see `open_checkpoint`.
        TransferError: storage fails.
    """
    place, single = _find(path, options)
    with ExitStack() as opened:
        names, stamps, _ = _weights(place, single, opened)
        for name in [*names, *_names_beside(place)]:
            source = place.open(name)
            if source is not None:
                stamps[name] = source.stamp
                source.close()
    return stamps


def _find(path: str, options: StorageOptions | None) -> tuple[Place, str]:
    """The folder, and the file in it if the path is one of a file."""
    if not path.endswith(".safetensors") or Path(path).is_dir():
        return place_of(path, options), ""
    folder, _, single = path.rpartition("/")
    return place_of(folder or ("/" if path.startswith("/") else "."), options), single


def _shards(
    place: Place, single: str, opened: ExitStack
) -> tuple[list[tuple[Source, Sequence[Stored]]], dict[str, str]]:
    names, stamps, weight_map = _weights(place, single, opened)
    found: list[tuple[Source, Sequence[Stored]]] = []
    for name in names:
        source = place.open(name)
        if source is None:
            fix = f"the index names it for {sum(file == name for file in weight_map.values())} tensors: download it"
            raise UserError("not there", where=_join(place, name), fix=fix if weight_map else None)
        opened.callback(source.close)
        tensors = _tensors(source)
        if weight_map:
            _compare(name, source.where, tensors, weight_map)
        stamps[name] = source.stamp
        found.append((source, tensors))
    return found, stamps


def _weights(place: Place, single: str, opened: ExitStack) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """Names of the files with tensors; the stamp of the index; what the index says."""
    if single:
        return [single], {}, {}
    index, whole = place.open(INDEX), place.open(SINGLE)
    for source in (index, whole):
        if source is not None:
            opened.callback(source.close)
    if index is not None and whole is not None:
        what = f"{SINGLE} and {INDEX} are both there, and loaders differ in which they take"
        raise UserError(what, where=place.location, fix="remove the one that is not meant")
    if whole is not None:
        return [SINGLE], {}, {}
    if index is None:
        _refuse_pickled(place)
        raise UserError(
            f"neither {SINGLE} nor {INDEX} is there", where=place.location, fix="give a checkpoint's folder"
        )
    weight_map = parse_index(read_all(index), index.where)
    return sorted(set(weight_map.values())), {INDEX: index.stamp}, weight_map


def _refuse_pickled(place: Place) -> None:
    names = place.names()
    if names is None:
        names = [name for name in _PICKLED if _is_there(place, name)]
    pickled = [name for name in names if name in _PICKLED or name.endswith((".bin", ".pt", ".pth", ".pkl", ".ckpt"))]
    if pickled:
        fix = "convert it: load it in transformers where you trust it, and save_pretrained(folder)"
        raise UserError(
            f"{pickled[0]} is a pickle, which can run any code when it is read", where=place.location, fix=fix
        )


def _is_there(place: Place, name: str) -> bool:
    source = place.open(name)
    if source is not None:
        source.close()
    return source is not None


def _tensors(source: Source) -> tuple[Stored, ...]:
    first = bytearray(min(source.nbytes, _FIRST_BYTES))
    stop = threading.Event()
    source.read_into(0, [memoryview(first)], stop)
    end = LENGTH_BYTES + header_bytes(bytes(first[:LENGTH_BYTES]), source.nbytes, source.where)
    if end > len(first):
        rest = bytearray(end - len(first))
        source.read_into(len(first), [memoryview(rest)], stop)
        first += rest
    return parse_header(bytes(first[LENGTH_BYTES:end]), source.nbytes, source.where)


def _compare(file: str, where: str, tensors: Sequence[Stored], weight_map: Mapping[str, str]) -> None:
    """What the index says of a file, against what is in it."""
    there = {tensor.name for tensor in tensors}
    told = {name for name, its in weight_map.items() if its == file}
    fix = "index and shards are not of one checkpoint: download both again"
    if missing := sorted(told - there):
        raise UserError(
            f"{missing[0]!r} is not in it, and the index says so ({len(missing)} such)", where=where, fix=fix
        )
    if extra := sorted(there - told):
        other = weight_map.get(extra[0])
        what = f"is in it, and the index says {other}" if other else "is in it, and not in the index"
        raise UserError(f"{extra[0]!r} {what} ({len(extra)} such)", where=where, fix=fix)


def _refuse_twice(shards: Sequence[tuple[Source, Sequence[Stored]]]) -> None:
    """Cannot be by an index that agrees with its shards; here for whoever builds on this without one."""
    seen: dict[str, str] = {}
    for source, tensors in shards:
        for tensor in tensors:
            if tensor.name in seen:
                raise UserError(f"{tensor.name!r} is also in {seen[tensor.name]}", where=source.where)
            seen[tensor.name] = source.where


def _names_beside(place: Place) -> list[str]:
    names = place.names()
    if names is None:
        return list(_COMMON)
    return [name for name in names if name.endswith(_BESIDE) and not name.endswith(".index.json")]


def _beside(place: Place, stamps: dict[str, str]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for name in _names_beside(place):
        source = place.open(name)
        if source is not None:
            try:
                files[name], stamps[name] = read_all(source), source.stamp
            finally:
                source.close()
    return files


def _join(place: Place, name: str) -> str:
    return f"{place.location.rstrip('/')}/{name}"
