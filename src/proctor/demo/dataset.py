"""The demo's data set: scenes in MDS shards, with a known handful of images that cannot be decoded.

Real data sets hold truncated uploads, error pages saved as images and empty files; the demo plants some of each, so
that a run has something to account for and a person can check that it did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from proctor.demo.scenes import jpeg_frames, scene, target
from proctor.rows import UserError
from proctor.sources.mds import MDSWriter

COLUMNS: Final = {"scene": "int", "frames": "list[jpeg]", "target": "json"}

FAULTS: Final[Mapping[str, Callable[[bytes], bytes]]] = MappingProxyType(
    {
        "truncated": lambda jpeg: jpeg[: len(jpeg) // 3],
        "html": lambda _: b"<!DOCTYPE html><html><body><h1>403 Forbidden</h1></body></html>\n",
        "empty": lambda _: b"",
        "no_header": lambda jpeg: bytes(64) + jpeg[64:],
        "headers_only": lambda jpeg: jpeg[:2] + b"\xff\xd9",
    }
)
"""Ways to spoil an image, by name: each makes bytes that no decoder accepts out of a good JPEG."""

CORRUPT_ROWS: Final[Mapping[int, str]] = MappingProxyType(
    {13: "truncated", 58: "html", 131: "empty", 407: "no_header", 860: "headers_only", 1334: "truncated", 1777: "html"}
)
"""Row id -> fault: the rows of the demo whose first frame is spoiled."""

_SHARD_BYTES = 4 << 20


def write_dataset(
    path: Path | str, rows: int, first_scene: int = 0, corrupt: Mapping[int, str] = CORRUPT_ROWS
) -> tuple[int, ...]:
    """Write scenes `first_scene` ... as `rows` rows of MDS shards and return the ids of the rows that were spoiled.

    Args:
        path: directory to make; one that holds a data set already is refused.
        rows: number of rows; row `i` shows scene `first_scene + i`.
        first_scene: number of the scene in row 0.
        corrupt: row id -> name of a fault in `FAULTS`; ids beyond `rows` are left out.

    Raises:
        UserError: the directory holds a data set already, or a fault is unknown.
    """
    spoiled = {row: _fault(name) for row, name in corrupt.items() if row < rows}
    with MDSWriter(out=Path(path), columns=COLUMNS, hashes=["xxh64"], size_limit=_SHARD_BYTES) as writer:
        for row in range(rows):
            shown = scene(first_scene + row)
            frames = jpeg_frames(shown)
            if row in spoiled:
                frames[0] = spoiled[row](frames[0])
            writer.write({"scene": shown.number, "frames": frames, "target": target(shown)})
    return tuple(sorted(spoiled))


def _fault(name: str) -> Callable[[bytes], bytes]:
    if name not in FAULTS:
        raise UserError(f"unknown fault {name!r}", fix=f"known: {', '.join(FAULTS)}")
    return FAULTS[name]
