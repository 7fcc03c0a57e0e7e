"""Bytes that a model's weights take in memory, from the headers of its files: no tensor is read."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from proctor.rows import UserError

WHERE = "engine.checkpoints"
FLOAT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a number, by the names that `engine.dtype` has."""

_FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
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


def read_weights(directory: Path) -> Weights:
    """The weights of a model directory.

    Raises:
        UserError: a file's header cannot be read; names the file.
    """
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        others = [file for pattern in _OTHER_FORMATS for file in directory.glob(pattern)]
        return Weights(0, sum(file.stat().st_size for file in others), "sizes of the weight files")
    floats = other = 0
    for file in files:
        for name, tensor in _header(file).items():
            if name == "__metadata__":
                continue
            if tensor["dtype"] in _FLOATS:
                floats += math.prod(tensor["shape"])
            else:
                start, end = tensor["data_offsets"]
                other += end - start
    return Weights(floats, other, "safetensors headers")


def _header(file: Path) -> dict[str, Any]:
    """Format: u64 length (little-endian), then so many bytes of JSON."""
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length > _LARGEST_HEADER:
                raise ValueError(f"a header of {length:,} bytes")
            header = json.loads(stream.read(length))
        for name, tensor in header.items():
            if name != "__metadata__":
                tensor["dtype"], math.prod(tensor["shape"]), tensor["data_offsets"][1]
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(file)) from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise UserError(f"not a safetensors file: {error}", where=str(file), fix="fetch it again") from error
    return header
