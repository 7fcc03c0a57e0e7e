"""The safetensors format, read by hand: no torch, no pickle, and nothing believed that a file says of itself.

Layout: length of the header (8 bytes, little-endian) | header (JSON) | data. The header maps a tensor's name to
``{"dtype", "shape", "data_offsets": [start, stop]}``, offsets counted from the start of the data, and ``__metadata__``
to texts. Tensors fill the data without holes and without overlaps. As the format's own reader has it
(https://github.com/huggingface/safetensors, ``safetensors/src/tensor.rs``), and names that come twice are refused, as
its description asks. Whoever asks for what a local file holds, and for none of its tensors, gets it by `read_header`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from proctor.rows import UserError
from proctor.transfer.manifest import ITEM_BYTES

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
"""Both as transformers names them."""
LENGTH_BYTES = 8
"""Before the header, its length."""
LONGEST_HEADER = 100_000_000
"""Bytes; the format's own cap."""
KNOWN = tuple(name for name in ITEM_BYTES if name != "C128")
"""The types of tensors that can be read."""
_METADATA = "__metadata__"
_MOST = 1 << 63
"""No tensor has as many bytes, an empty one's other sizes included: torch counts in 64 bits with a sign."""
_FIX = "download or write it again"


class Stored(NamedTuple):
    """A tensor in a file.

    Attributes:
        name: its key.
        dtype: a key of `ITEM_BYTES`.
        shape: empty for a 0-dim tensor.
        start: first byte, from the start of the file.
        stop: first byte behind it.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def weight_files(directory: Path) -> list[Path]:
    """The files of a local folder that hold its model: those that its index names, or the only one, or, where names are
    others than transformers', all of this format. They need not be there, nor whole.

    Raises:
        UserError: the index is none.
        OSError: it cannot be read.
    """
    index = directory / INDEX
    if index.is_file():
        return [directory / name for name in sorted(set(parse_index(index.read_bytes(), str(index)).values()))]
    whole = directory / SINGLE
    return [whole] if whole.is_file() else sorted(directory.glob("*.safetensors"))


def read_header(file: Path, *, complete: bool = True) -> tuple[Stored, ...]:
    """The tensors of a local file in the order of their bytes; only its header is read.

    Args:
        file: where it lies.
        complete: the file has to hold all that the header tells of, in types that are known. Without, data may be
            missing, and a tensor of a type that is not known has the bytes that the header gives it.

    Raises:
        UserError: it is none of this format, or not complete.
        OSError: it cannot be read.
    """
    with file.open("rb") as stream:
        nbytes = file.stat().st_size if complete else None
        length = header_bytes(stream.read(LENGTH_BYTES), nbytes, str(file))
        return parse_header(stream.read(length), nbytes, str(file))


def header_bytes(first: bytes, file_bytes: int | None, where: str) -> int:
    """Length of the header.

    Args:
        first: the first `LENGTH_BYTES` of the file, or all there are.
        file_bytes: length of the file; None if that does not matter.
        where: of the file, for messages.

    Raises:
        UserError: no file of this format is like that.
    """
    if len(first) < LENGTH_BYTES or (file_bytes is not None and file_bytes < LENGTH_BYTES):
        _refuse(f"{len(first) if file_bytes is None else file_bytes} bytes are no safetensors file", where)
    length = int.from_bytes(first[:LENGTH_BYTES], "little")
    if length > LONGEST_HEADER:
        _refuse(f"its header claims {length:,} bytes, and {LONGEST_HEADER:,} is the most", where)
    if file_bytes is not None and LENGTH_BYTES + length > file_bytes:
        _refuse(f"cut short: a header of {length:,} bytes in a file of {file_bytes:,}", where)
    return length


def parse_header(header: bytes, file_bytes: int | None, where: str) -> tuple[Stored, ...]:
    """The tensors of a file in the order of their bytes.

    Args:
        header: the JSON.
        file_bytes: length of the file, which they have to fill; None: see `complete` of `read_header`.
        where: of the file, for messages.

    Raises:
        UserError: the header is damaged, or says what cannot be.
    """
    found = _json(header, where)
    metadata = found.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        _refuse(f"{_METADATA} is more than texts by name", where)
    data = LENGTH_BYTES + len(header)
    lax = file_bytes is None
    stored = sorted((_tensor(name, told, data, where, lax=lax) for name, told in found.items()), key=_place)
    _refuse_holes(stored, data, file_bytes, where)
    return tuple(stored)


def parse_index(data: bytes, where: str) -> dict[str, str]:
    """The ``weight_map`` of an index of shards: the file of every tensor.

    ``total_size`` is not looked at: writers count tied tensors once or twice, and what counts is in the files.

    Raises:
        UserError: it is no index, or names files outside of its folder.
    """
    weight_map = _json(data, where).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        _refuse("no weight_map in this index", where)
    for name, file in weight_map.items():
        if (
            not isinstance(file, str)
            or not file.endswith(".safetensors")
            or "/" in file
            or "\\" in file
            or "\0" in file
        ):
            _refuse(f"{name} lies in {file!r}, which is no safetensors file of this folder", where)
    return weight_map


def _json(data: bytes, where: str) -> dict[str, Any]:
    if len(data) > LONGEST_HEADER:
        _refuse(f"{len(data):,} bytes of JSON, and {LONGEST_HEADER:,} is the most", where)

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"{twice!r} is there twice")
        return found

    try:
        text = data.decode("utf-8")
        found = json.loads(text, object_pairs_hook=once, parse_constant=_no_number)
    except RecursionError:
        _refuse("its JSON is nested too deep", where)
    except ValueError as error:  # also of JSON and of UTF-8, and a number of too many digits
        _refuse(f"its JSON cannot be read: {error}", where)
    if not text.startswith("{") or not isinstance(found, dict):
        _refuse("its JSON is no object", where)
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _tensor(name: str, told: object, data: int, where: str, *, lax: bool) -> Stored:
    if not isinstance(told, dict) or told.keys() != {"dtype", "shape", "data_offsets"}:
        _refuse(f"{name!r} is told without dtype, shape and data_offsets, or with more", where)
    dtype, shape, offsets = told["dtype"], told["shape"], told["data_offsets"]
    if not isinstance(dtype, str) or not (lax or dtype in KNOWN):
        raise UserError(
            f"{name!r} has the type {dtype!r}, which is not known", where=where, fix=f"one of {', '.join(KNOWN)}"
        )
    if not _is_sizes(shape) or not _is_sizes(offsets) or len(offsets) != 2 or not _is_text(name):
        _refuse(
            f"{name!r} has a name, a shape or offsets that cannot be: {str(shape)[:60]}, {str(offsets)[:60]}", where
        )
    start, stop = offsets
    if stop < start or (dtype in KNOWN and not _fills(dtype, shape, stop - start)):
        _refuse(f"{name!r}: {dtype}{str(shape)[:60]} does not have {stop - start} bytes", where)
    return Stored(name, dtype, tuple(shape), data + start, data + stop)


def _fills(dtype: str, shape: Sequence[int], nbytes: int) -> bool:
    largest = prod(max(size, 1) for size in shape) * ITEM_BYTES[dtype]
    return largest < _MOST and prod(shape) * ITEM_BYTES[dtype] == nbytes


def _is_sizes(value: object) -> bool:
    """Whether it is a list of counts that fit into 63 bits (true and 1.0 are none)."""
    return isinstance(value, list) and all(type(size) is int and 0 <= size < _MOST for size in value)


def _is_text(name: str) -> bool:
    """Whether it can be written as UTF-8: JSON can tell halves of characters."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _place(tensor: Stored) -> tuple[int, int, str]:
    return tensor.start, tensor.stop, tensor.name


def _refuse_holes(stored: Sequence[Stored], data: int, file_bytes: int | None, where: str) -> None:
    at = data
    for tensor in stored:
        if tensor.start != at:
            what = "overlaps the tensor before it" if tensor.start < at else "has a hole before it"
            _refuse(f"{tensor.name!r} {what}", where)
        at = tensor.stop
    if file_bytes is None:
        return
    if at > file_bytes:
        _refuse(f"cut short: its tensors end at byte {at:,}, and the file at {file_bytes:,}", where)
    if at < file_bytes:
        _refuse(f"{file_bytes - at:,} bytes behind its last tensor belong to none", where)


def _refuse(what: str, where: str) -> NoReturn:
    raise UserError(what, where=where, fix=_FIX)
