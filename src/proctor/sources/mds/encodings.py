"""The names of MDS column encodings, and the Arrow type that a column of each becomes.

==========================  ==============================================================================
encoding                    Arrow column
==========================  ==============================================================================
bytes                       large_binary
str, json                   large_string (JSON stays text: whoever needs it parses it)
int                         int64
uint8 .. uint64,            the type of the same name
int8 .. int64,
float16 .. float64
str_int, str_float          int64, float64 (a number that int64 cannot hold is an error of its row)
str_decimal                 large_string, checked to be a decimal number (Arrow's decimals cannot hold them all)
ndarray:T:d0,d1             list<T> of the values in C order; the shape is in the field's metadata (``mds.shape``)
ndarray:T                   struct<shape: list<int64>, values: list<T>>
ndarray                     struct<dtype: string, shape: list<int64>, data: large_binary> (little-endian values)
jpeg, png                   large_binary, the file as it is
pil                         large_binary: the raw pixels as a PNG file, or as TIFF where PNG lacks the mode
jpegarray, jpeg_array,      list<large_binary>, encoded as above
list[jpeg|png|pil]
pkl                         refused; with `allow_pickle` large_binary, the pickle as it is: it is never loaded
==========================  ==============================================================================
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

SCALARS: tuple[str, ...] = (
    "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
)  # fmt: skip

NDARRAY_CODES: dict[int, str] = {
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32", 34: "float32",
    64: "uint64", 65: "int64", 66: "float64",
}  # fmt: skip
"""Byte that names an array's dtype inside a cell of a plain ``ndarray`` column."""

_IMAGES = pa.list_(pa.field("item", pa.large_binary()))

_ARROW_TYPES: dict[str, pa.DataType] = {
    "bytes": pa.large_binary(),
    "str": pa.large_string(),
    "json": pa.large_string(),
    "int": pa.int64(),
    "str_int": pa.int64(),
    "str_float": pa.float64(),
    "str_decimal": pa.large_string(),
    "jpeg": pa.large_binary(),
    "png": pa.large_binary(),
    "pil": pa.large_binary(),
    "jpegarray": _IMAGES,
    "jpeg_array": _IMAGES,
    "list[jpeg]": _IMAGES,
    "list[png]": _IMAGES,
    "list[pil]": _IMAGES,
    "pkl": pa.large_binary(),
    **{name: pa.from_numpy_dtype(name) for name in SCALARS},
}

ENCODING_NAMES: tuple[str, ...] = tuple(sorted([*_ARROW_TYPES, "ndarray"]))
"""Every encoding of MDS version 2, without the parameters of ``ndarray``."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """A column's encoding, parsed.

    Attributes:
        text: as the index spells it, e.g. ``ndarray:float32:2,3``.
        name: without parameters, e.g. ``ndarray``.
        dtype: numpy name of the values of scalars and of arrays with a fixed dtype.
        shape: shape of arrays with a fixed one.
    """

    text: str
    name: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None

    @property
    def size(self) -> int | None:
        """Bytes of every cell, or None where cells differ."""
        if self.dtype is None or (self.name == "ndarray" and self.shape is None):
            return None
        return math.prod(self.shape or ()) * np.dtype(self.dtype).itemsize

    @property
    def arrow_type(self) -> pa.DataType:
        """Type of the Arrow column."""
        if self.name != "ndarray":
            return _ARROW_TYPES[self.name]
        if self.dtype is None:
            fields = [("dtype", pa.string()), ("shape", pa.list_(pa.int64())), ("data", pa.large_binary())]
            return pa.struct(fields)
        values = pa.list_(pa.from_numpy_dtype(self.dtype))
        return values if self.shape else pa.struct([("shape", pa.list_(pa.int64())), ("values", values)])

    def field(self, name: str) -> pa.Field:
        """Field of a column with this encoding; the metadata keeps what the type cannot say."""
        metadata = {"mds.encoding": self.text}
        if self.shape:
            metadata["mds.shape"] = ",".join(map(str, self.shape))
        return pa.field(name, self.arrow_type, metadata=metadata)


@functools.cache
def parse_encoding(text: str) -> Encoding:
    """Parses an encoding as an index spells it.

    Raises:
        ValueError: it is none of MDS version 2; says why.
    """
    name, _, parameters = text.partition(":")
    if name not in ENCODING_NAMES or (":" in text and name != "ndarray"):
        raise ValueError(f"unknown encoding {text!r}; MDS has {', '.join(ENCODING_NAMES)}")
    if name == "ndarray":
        return _parse_ndarray(text, parameters)
    return Encoding(text, name, dtype="int64" if name == "int" else name if name in SCALARS else None)


def _parse_ndarray(text: str, parameters: str) -> Encoding:
    if text == "ndarray":
        return Encoding(text, "ndarray")
    dtype, _, dims = parameters.partition(":")
    if dtype not in SCALARS:
        raise ValueError(f"encoding {text!r}: {dtype!r} is not a dtype of MDS arrays ({', '.join(SCALARS)})")
    if not dims:
        return Encoding(text, "ndarray", dtype)
    if not all(dim.isdecimal() and int(dim) >= 1 for dim in dims.split(",")):
        raise ValueError(f"encoding {text!r}: the shape must be whole numbers >= 1, separated by commas")
    return Encoding(text, "ndarray", dtype, tuple(map(int, dims.split(","))))
