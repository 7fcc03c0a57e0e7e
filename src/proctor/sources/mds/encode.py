"""Values -> the bytes of MDS cells. The counterpart of the decoders, used by `MDSWriter`.

`bytes` pass through every encoding untouched, as they do in the public writer: it is the way to store JPEG or PNG files
without encoding them again.
"""

from __future__ import annotations

import io
import json
import math
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proctor.sources.mds.encodings import NDARRAY_CODES, Encoding

_DTYPE_CODES = {name: code for code, name in NDARRAY_CODES.items()}
_JPEG_QUALITY = 95


def encode_cell(encoding: Encoding, value: Any) -> bytes:
    """Bytes of one cell.

    Raises:
        ValueError, TypeError: the value does not fit the encoding; says why.
    """
    data = bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else _encode(encoding, value)
    if encoding.size is not None and len(data) != encoding.size:
        raise ValueError(f"{encoding.text} takes {encoding.size} bytes, got {len(data)}")
    return data


def _encode(encoding: Encoding, value: Any) -> bytes:
    if encoding.name == "ndarray":
        return _ndarray(encoding, np.asarray(value))
    if encoding.dtype is not None:
        return _scalar(encoding.dtype, value)
    encode = _ENCODERS.get(encoding.name)
    if encode is None:
        raise TypeError(f"{encoding.name} takes bytes, got {type(value).__name__}")
    return encode(value)


def _scalar(dtype: str, value: Any) -> bytes:
    """One number; refuses what the type would wrap or cut, as numpy's own conversion of numpy scalars does silently."""
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise TypeError(f"{dtype} takes a number, got {type(value).__name__}")
    kind = np.dtype(dtype)
    if kind.kind == "f":
        with np.errstate(over="ignore"):
            data = np.array(number, kind)
        fits = bool(np.isfinite(data)) or not math.isfinite(number)
    else:
        fits = math.isfinite(number) and number == int(number) and np.iinfo(kind).min <= number <= np.iinfo(kind).max
        data = np.array(int(number) if fits else 0, kind)
    if not fits:
        raise ValueError(f"{number} does not fit in {dtype}")
    return data.tobytes()


def _ndarray(encoding: Encoding, array: NDArray[Any]) -> bytes:
    code = _DTYPE_CODES.get(array.dtype.name)
    if code is None or (encoding.dtype is not None and array.dtype.name != encoding.dtype):
        raise TypeError(f"{encoding.text} takes {encoding.dtype or 'numbers'}, got an array of {array.dtype.name}")
    if encoding.shape is not None and array.shape != encoding.shape:
        raise ValueError(f"{encoding.text} takes shape {encoding.shape}, got {array.shape}")
    if array.ndim == 0 or array.size == 0 or array.ndim > 63:
        raise ValueError(f"{encoding.text} takes arrays of 1 to 63 axes with values, got shape {array.shape}")
    head = b"" if encoding.dtype else bytes([code])
    if encoding.shape is None:
        head += _shape_header(array.shape)
    return head + array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def _shape_header(shape: tuple[int, ...]) -> bytes:
    width = next(power for power in range(4) if max(shape) < 1 << (8 << power))
    return bytes([len(shape) << 2 | width]) + np.array(shape, f"<u{1 << width}").tobytes()


def _text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"str takes text, got {type(value).__name__}")
    return value.encode()


def _json(value: Any) -> bytes:
    return json.dumps(value.tolist() if isinstance(value, np.ndarray) else value, allow_nan=False).encode()


def _number_text(kind: type) -> Callable[[Any], bytes]:
    def encode(value: Any) -> bytes:
        if not isinstance(value, kind) or isinstance(value, bool):
            raise TypeError(f"takes {kind.__name__}, got {type(value).__name__}")
        return str(value).encode()

    return encode


def _image_file(image_format: str) -> Callable[[Any], bytes]:
    def encode(value: Any) -> bytes:
        if not hasattr(value, "save"):
            raise TypeError(f"{image_format.lower()} takes bytes or a PIL image, got {type(value).__name__}")
        out = io.BytesIO()
        options = {"quality": _JPEG_QUALITY} if image_format == "JPEG" else {}
        value.save(out, format=image_format, **options)
        return out.getvalue()

    return encode


def _raw_image(value: Any) -> bytes:
    if not hasattr(value, "tobytes") or not hasattr(value, "mode"):
        raise TypeError(f"pil takes bytes or a PIL image, got {type(value).__name__}")
    if value.mode in {"P", "PA"}:
        raise ValueError(f"a pil cell does not hold the palette of mode {value.mode}: convert the image to RGB first")
    mode = value.mode.encode()
    return struct.pack("<3I", value.width, value.height, len(mode)) + mode + value.tobytes()


def _sequence(encode: Callable[[Any], bytes], head: bytes) -> Callable[[Any], bytes]:
    def encode_all(values: Any) -> bytes:
        if not isinstance(values, Sequence):
            raise TypeError(f"takes a list of images, got {type(values).__name__}")
        items = [bytes(item) if isinstance(item, (bytes, bytearray)) else encode(item) for item in values]
        sizes = struct.pack(f"<{len(items) + 1}I", len(items), *map(len, items))
        return b"".join([head, sizes, *items])

    return encode_all


_PLACEHOLDER = bytes(4)  # list[...] cells start with a word that the format keeps for later

_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "str": _text,
    "json": _json,
    "str_int": _number_text(int),
    "str_float": _number_text(float),
    "str_decimal": _number_text(Decimal),
    "jpeg": _image_file("JPEG"),
    "png": _image_file("PNG"),
    "pil": _raw_image,
    "jpegarray": _sequence(_image_file("JPEG"), b""),
    "jpeg_array": _sequence(_image_file("JPEG"), b""),
    "list[jpeg]": _sequence(_image_file("JPEG"), _PLACEHOLDER),
    "list[png]": _sequence(_image_file("PNG"), _PLACEHOLDER),
    "list[pil]": _sequence(_raw_image, _PLACEHOLDER),
}
