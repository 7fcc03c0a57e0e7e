"""The data: rows of five to ten tiny, real JPEGs, in MDS shards."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
from PIL import Image

from proctor.sources.mds import MDSWriter

PICTURES = 2_000
LEAST, MOST = 5, 10
COLUMNS = {"frames": "list[jpeg]", "key": "int", "question": "str", "target": "str"}


def images_of(row: int) -> int:
    """How many images a row has."""
    return LEAST + row * 7919 % (MOST - LEAST + 1)


def dataset(home: Path, rows: int) -> Path:
    """A data set of `rows` rows below `home`; one that is there already is used again."""
    path = home / f"scale-{rows}"
    if not (path / "index.json").exists():
        pictures = _pictures()
        with MDSWriter(path, COLUMNS) as writer:
            for row in range(rows):
                frames = [pictures[(row * 31 + number * 997) % PICTURES] for number in range(images_of(row))]
                writer.write({"frames": frames, "key": row, "question": f"scene {row}?", "target": f"answer {row}"})
    return path


def bytes_of(path: Path) -> int:
    """Bytes of all shards."""
    return sum(shard["raw_data"]["bytes"] for shard in json.loads((path / "index.json").read_text())["shards"])


def _pictures() -> list[bytes]:
    """Small pictures of many sizes, all different: gradients with noise, as a camera's are."""
    random, made = np.random.default_rng(0), []
    for number in range(PICTURES):
        height, width = 24 + number % 17, 32 + number % 23
        slope = np.linspace(0, 160, height * width * 3).reshape(height, width, 3)
        pixels = (slope + random.integers(0, 40, (height, width, 3)) + number % 55).clip(0, 255).astype(np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "JPEG", quality=80)
        made.append(buffer.getvalue())
    return made
