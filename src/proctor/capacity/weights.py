"""Bytes that a model's weights take in memory, from the headers of its files: no tensor is read."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from proctor.spec.model import MOST_ID

WHERE = "engine.checkpoints"
FLOAT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a number, by the names that `engine.dtype` has."""

NOT_KNOWN = "not known"
_FLOATS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_LARGEST_HEADER = 100_000_000
"""What safetensors itself refuses to read."""
_OTHER_FORMATS = ("*.bin", "*.pt", "*.gguf")


class Weights(NamedTuple):
    """What the files hold.

    Attributes:
        float_values: numbers of a floating point type of 2 bytes or more, which are converted to the type asked for.
        other_bytes: bytes of everything else (quantised weights, integers), which stay as they are.
        source: where this is from.
    """

    float_values: int
    other_bytes: int
    source: str

    def bytes_as(self, dtype: str) -> int:
        """Bytes in memory with floats as ``float32``, ``bfloat16`` or ``float16``."""
        return self.float_values * FLOAT_BYTES[dtype] + self.other_bytes


def read_weights(directory: Path) -> tuple[Weights, list[str]]:
    """The weights of a model directory, and a line for each file that does not tell; there is then no sum."""
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        return _sizes([file for pattern in _OTHER_FORMATS for file in directory.glob(pattern)])
    floats = other = 0
    unread: list[str] = []
    for file in files:
        try:
            for name, tensor in _header(file).items():
                if name != "__metadata__":
                    numbers, size = _size(tensor)
                    floats, other = floats + numbers, other + size
        except OSError as error:
            unread.append(f"{file}: cannot be read: {error.strerror}")
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            unread.append(f"{file}: not a safetensors file: {error}")
    return (Weights(0, 0, NOT_KNOWN) if unread else Weights(floats, other, "safetensors headers")), unread


def _sizes(files: list[Path]) -> tuple[Weights, list[str]]:
    try:
        return Weights(0, sum(file.stat().st_size for file in files), "sizes of the weight files"), []
    except OSError as error:
        return Weights(0, 0, NOT_KNOWN), [f"{error.filename}: cannot be read: {error.strerror}"]


def _size(tensor: dict[str, Any]) -> tuple[int, int]:
    """Numbers of a floating point type, or else bytes of a tensor."""
    kind, shape, (start, end) = tensor["dtype"], tensor["shape"], tensor["data_offsets"]
    whole = [*shape, start, end]
    if any(type(number) is not int or number < 0 for number in whole) or end < start:
        raise ValueError("a shape or an offset that is none")
    if not isinstance(kind, str):
        raise ValueError("a dtype that is none")
    if kind not in _FLOATS:
        return 0, end - start
    numbers = math.prod(shape)
    if numbers * _FLOATS[kind] != end - start:
        raise ValueError(
            f"{numbers:.4g} numbers in {end - start:,} bytes" if numbers < MOST_ID else "a shape too large"
        )
    return numbers, 0


def _header(file: Path) -> dict[str, Any]:
    """Format: u64 length (little-endian), then so many bytes of JSON."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > _LARGEST_HEADER:
            raise ValueError(f"a header of {length:,} bytes")
        header = json.loads(stream.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")
    return header
