"""Decodes cells of scalars, text and numbers written as text."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from proctor.sources.mds.cells import Cells, Faults, binary_array, read_numbers, without
from proctor.sources.mds.encodings import Encoding

_INT64 = np.iinfo(np.int64)


def decode_binary(_encoding: Encoding, cells: Cells, _faults: Faults) -> pa.Array:
    """Bytes, and image files, as they are."""
    return binary_array(cells)


def decode_scalar(encoding: Encoding, cells: Cells, faults: Faults) -> pa.Array:
    """Numbers of a fixed width."""
    assert encoding.dtype is not None
    size = np.dtype(encoding.dtype).itemsize
    sound = cells.sizes == size
    values = np.zeros(len(cells), encoding.dtype)
    values[sound] = read_numbers(cells.window, cells.starts[sound], encoding.dtype)
    for row in np.flatnonzero(~sound):
        faults[int(row)] = f"{encoding.text} takes {size} bytes, this has {cells.sizes[row]}"
    return pa.array(values)


def decode_text(_encoding: Encoding, cells: Cells, faults: Faults) -> pa.Array:
    """UTF-8 text. One bad row would fail the whole column's check, so the rows are then looked at one by one."""
    data = binary_array(cells)
    try:
        return data.cast(pa.large_string())
    except pa.ArrowInvalid:
        bad = [row for row in range(len(cells)) if not _is_utf8(cells.raw(row))]
    faults.update(dict.fromkeys(bad, "is not UTF-8 text"))
    return without(data, bad).cast(pa.large_string())


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def decode_number_text(encoding: Encoding, cells: Cells, faults: Faults) -> pa.Array:
    """Numbers as decimal text, read by Python's own rules as the public reader does."""
    parse = _PARSERS[encoding.name]
    texts = decode_text(encoding, cells, faults).to_pylist()
    values: list[Any] = [None] * len(texts)
    for row, text in enumerate(texts):
        if text is None:
            continue
        try:
            values[row] = parse(text)
        except (ValueError, InvalidOperation):
            faults[row] = f"{text[:40]!r} is not a number that {encoding.name} can hold"
    return pa.array(values, encoding.arrow_type)


def _int64(text: str) -> int:
    number = int(text)
    if not _INT64.min <= number <= _INT64.max:
        raise ValueError("beyond 64 bits")
    return number


def _decimal(text: str) -> str:
    Decimal(text)
    return text


_PARSERS: dict[str, Callable[[str], Any]] = {"str_int": _int64, "str_float": float, "str_decimal": _decimal}
