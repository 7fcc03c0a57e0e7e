"""Bytes that a model's weights take in memory, from the headers of its files: no tensor is read."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from proctor.rows import UserError
from proctor.transfer.manifest import ITEM_BYTES
from proctor.transfer.safetensors import INDEX, Stored, read_header, weight_files

WHERE = "engine.checkpoints"
FLOAT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a number, by the names that `engine.dtype` has."""

NOT_KNOWN = "not known"
_FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
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
    try:
        files = weight_files(directory)
    except (OSError, UserError) as error:
        return Weights(0, 0, NOT_KNOWN), [_line(directory / INDEX, "no index", error)]
    if not files:
        return _sizes([file for pattern in _OTHER_FORMATS for file in directory.glob(pattern)])
    floats = other = 0
    unread: list[str] = []
    for file in files:
        try:
            for tensor in read_header(file, complete=False):
                numbers, rest = _size(tensor)
                floats, other = floats + numbers, other + rest
        except (OSError, UserError) as error:
            unread.append(_line(file, "not a safetensors file", error))
    return (Weights(0, 0, NOT_KNOWN) if unread else Weights(floats, other, "safetensors headers")), unread


def _line(file: Path, wrong: str, error: OSError | UserError) -> str:
    return f"{file}: {f'cannot be read: {error.strerror}' if isinstance(error, OSError) else f'{wrong}: {error.what}'}"


def _sizes(files: list[Path]) -> tuple[Weights, list[str]]:
    try:
        return Weights(0, sum(file.stat().st_size for file in files), "sizes of the weight files"), []
    except OSError as error:
        return Weights(0, 0, NOT_KNOWN), [f"{error.filename}: cannot be read: {error.strerror}"]


def _size(tensor: Stored) -> tuple[int, int]:
    """Numbers of a floating point type, or else bytes of a tensor."""
    nbytes = tensor.stop - tensor.start
    return (nbytes // ITEM_BYTES[tensor.dtype], 0) if tensor.dtype in _FLOATS else (0, nbytes)
