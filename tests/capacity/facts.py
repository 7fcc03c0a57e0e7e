"""Specs and facts for plans that are worked out without data."""

from __future__ import annotations

from typing import Any

from proctor.capacity.evaluate import Facts
from proctor.capacity.rowcost import BlockCost, ImageSize
from proctor.capacity.sample import Sample
from proctor.spec import RunSpec, build_spec


def spec(**parts: Any) -> RunSpec:
    """A spec of a run with the scripted engine; keyword arguments replace its parts."""
    plain: dict[str, Any] = {
        "run_dir": "runs/x",
        "source": {"kind": "jsonl", "path": "rows.jsonl"},
        "engine": {"kind": "scripted", "checkpoints": ["ck"]},
        "task": {"kind": "exact"},
    }
    return build_spec({**plain, **parts})


def block(**parts: Any) -> BlockCost:
    """A sampled block: 100 rows of 100 kB; reading takes twice its bytes, preparing three times."""
    plain: dict[str, Any] = {
        "shard": 0,
        "rows": 100,
        "failed": 0,
        "source_bytes": 10_000_000,
        "arrow_bytes": 10_000_000,
        "largest_row": 120_000,
        "read_peak": 20_000_000,
        "read_seconds": 0.02,
        "read_cpu": 0.02,
        "prepared_rows": 100,
        "prepare_source_bytes": 10_000_000,
        "prepare_peak": 30_000_000,
        "prepare_cpu": 0.1,
        "prepared_bytes": 10_000_000,
        "write_cpu": 0.01,
        "images": 200,
        "image_rows": ((ImageSize(360, 640), ImageSize(360, 640)),),
        "prompt_chars": 300,
    }
    return BlockCost(**{**plain, **parts})


def facts(rows: int = 100_000, sample: Sample | None = None, **parts: Any) -> Facts:
    """Facts about `rows` rows like those of `block`."""
    sample = Sample((block(),)) if sample is None else sample
    return Facts(**{"rows": rows, "source_rows": rows, "source_bytes": rows * 100_000, "sample": sample, **parts})
