"""Runs jobs in vLLM's own environment and brings back what came of them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec

from proctor.engines.base import EngineConfig
from tests.engines.vllm_child import Jobs, Results
from tests.engines.vllm_swaps_child import Outcome, Step

ROOT = Path(__file__).parents[2]
CHILD = Path(__file__).with_name("vllm_child.py")
SWAPS = Path(__file__).with_name("vllm_swaps_child.py")
SECONDS = 280
SECONDS_OF_STEPS = 800
SMALL_CACHE = {"kv_cache_memory_bytes": 2**25}


def environment() -> dict[str, str]:
    """That of this process, with `proctor` importable; what the tests set for themselves stays out."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def vllm_config(model: Path, kind: str = "vllm", **changes: Any) -> EngineConfig:
    options = {**(SMALL_CACHE if kind == "vllm" else {}), **changes.pop("options", {})}
    settings = {"dtype": "float32", "batch_size": 8, "max_model_len": 256, **changes}
    return EngineConfig(kind, str(model), options=options, **settings)


def run_jobs(python: Path, work: Path, jobs: Jobs, **variables: str) -> Results:
    """Results of `jobs`, run by the interpreter `python` with `variables` in its environment; files go to `work`."""
    done = _run(python, CHILD, work, msgspec.msgpack.encode(jobs), SECONDS, variables)
    return msgspec.msgpack.decode(done, type=Results)


def run_steps(python: Path, work: Path, steps: list[Step]) -> list[Outcome]:
    """What came of `steps`, one after another in one process."""
    done = _run(python, SWAPS, work, msgspec.msgpack.encode(steps), SECONDS_OF_STEPS, {})
    return msgspec.msgpack.decode(done, type=list[Outcome])


def _run(python: Path, program: Path, work: Path, told: bytes, seconds: float, variables: dict[str, str]) -> bytes:
    source, target = work / "jobs", work / "results"
    source.write_bytes(told)
    done = subprocess.run(
        [str(python), str(program), str(source), str(target)],
        env=environment() | variables,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    return target.read_bytes()
