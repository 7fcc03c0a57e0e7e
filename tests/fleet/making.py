"""Fleet specs, and checkpoint directories, as tests need them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

RUN: dict[str, Any] = {
    "source": {"kind": "jsonl", "path": "rows.jsonl", "columns": {"target": "target"}},
    "engine": {"kind": "scripted"},
    "task": {"kind": "exact"},
}


def write_fleet(directory: Path, **keys: Any) -> Path:
    """``fleet.yaml`` with the run spec inside, and whatever `keys` say."""
    content = {"fleet_dir": "fleet", "run": RUN, **keys}
    path = directory / "fleet.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def write_checkpoint(place: Path, *, shards: int = 1, without: int | None = None) -> Path:
    """A checkpoint of one small tensor in each shard; the shard `without` is left out."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.json").write_text("{}", encoding="utf-8")
    if shards == 1:
        write_tensor(place / "model.safetensors", "w")
        return place
    names = [f"model-{n + 1:05d}-of-{shards:05d}.safetensors" for n in range(shards)]
    for number, name in enumerate(names):
        if number != without:
            write_tensor(place / name, f"w{number}")
    index = {"weight_map": {f"w{number}": name for number, name in enumerate(names)}}
    (place / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return place


def write_tensor(file: Path, name: str) -> None:
    """A safetensors file with one number in it."""
    header = json.dumps({name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    file.write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0\0\0")
