"""Bytes that a model's weights take in memory, from the headers of its files: no tensor is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from proctor.rows import UserError
from proctor.transfer.manifest import ITEM_BYTES
from proctor.transfer.safetensors import INDEX, Stored, read_header, weight_files

WHERE = "engine.checkpoints"
FLOAT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a number, by the names that `engine.dtype` has."""

NOT_KNOWN = "not known"
_FLOATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_OTHER_FORMATS = ("*.bin", "*.pt", "*.gguf")


class Weights(NamedTuple):
    """What the files hold.

    Attributes:
        float_values: numbers of a floating point type of 2 bytes or more, which are converted to the type asked for.
        other_bytes: bytes of everything else (quantised weights, integers), which stay as they are.
        source: where this is from.
        stored_bytes: bytes of all of them as they are in the files.
        by_type: the floating point numbers by their type, in the names that `engine.dtype` has (and ``float64``).
    """

    float_values: int
    other_bytes: int
    source: str
    stored_bytes: int = 0
    by_type: tuple[tuple[str, int], ...] = ()

    def bytes_as(self, dtype: str) -> int:
        """Bytes in memory with floats as ``float32``, ``bfloat16`` or ``float16``."""
        return self.float_values * FLOAT_BYTES[dtype] + self.other_bytes

    def converted_bytes(self, dtype: str) -> int:
        """Bytes in memory of the floats that are of another type in the files."""
        return sum(numbers for name, numbers in self.by_type if name != dtype) * FLOAT_BYTES[dtype]


def read_weights(directory: Path) -> tuple[Weights, list[str]]:
    """The weights of a model directory, and a line for each file that does not tell; there is then no sum."""
    try:
        files = weight_files(directory)
    except (OSError, UserError) as error:
        return Weights(0, 0, NOT_KNOWN), [_line(directory / INDEX, "no index", error)]
    if not files:
        return _sizes([file for pattern in _OTHER_FORMATS for file in directory.glob(pattern)])
    tensors: list[Stored] = []
    unread: list[str] = []
    for file in files:
        try:
            tensors += read_header(file, complete=False)
        except (OSError, UserError) as error:
            unread.append(_line(file, "not a safetensors file", error))
    return (Weights(0, 0, NOT_KNOWN) if unread else _summed(tensors)), unread


def _line(file: Path, wrong: str, error: OSError | UserError) -> str:
    return f"{file}: {f'cannot be read: {error.strerror}' if isinstance(error, OSError) else f'{wrong}: {error.what}'}"


def _sizes(files: list[Path]) -> tuple[Weights, list[str]]:
    try:
        nbytes = sum(file.stat().st_size for file in files)
        return Weights(0, nbytes, "sizes of the weight files", nbytes), []
    except OSError as error:
        return Weights(0, 0, NOT_KNOWN), [f"{error.filename}: cannot be read: {error.strerror}"]


def _summed(tensors: Sequence[Stored]) -> Weights:
    numbers: Counter[str] = Counter()
    other = 0
    for tensor in tensors:
        nbytes = tensor.stop - tensor.start
        if tensor.dtype in _FLOATS:
            numbers[_FLOATS[tensor.dtype]] += nbytes // ITEM_BYTES[tensor.dtype]
        else:
            other += nbytes
    stored = sum(tensor.stop - tensor.start for tensor in tensors)
    return Weights(numbers.total(), other, "safetensors headers", stored, tuple(numbers.items()))
