"""Writes small traces as the PyTorch profiler does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

H100 = {
    "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85018279936, "computeMajor": 9, "computeMinor": 0,
    "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536, "warpSize": 32,
    "sharedMemPerBlock": 49152, "numSms": 132, "regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": 232448,
    "sharedMemPerMultiprocessor": 233472,
}  # fmt: skip


def kernel(name: str = "k", ts: float = 10.0, dur: float = 2.0, correlation: int = 1, **more: Any) -> dict[str, Any]:
    args = {"device": 0, "context": 1, "stream": 7, "correlation": correlation, "grid": [4, 5, 6], "block": [128, 2, 1]}
    args |= {"registers per thread": 40, "shared memory": 1024, "est. achieved occupancy %": 27} | more.pop("args", {})
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": args} | more


def call(
    name: str = "cudaLaunchKernel", ts: float = 5.0, correlation: int = 1, pid: int = 100, **more: Any
) -> dict[str, Any]:
    args = {"cbid": 211, "correlation": correlation}
    return {
        "ph": "X", "cat": "cuda_runtime", "name": name, "pid": pid, "tid": pid, "ts": ts, "dur": 1, "args": args,
    } | more  # fmt: skip


def written(path: Path, events: list[dict[str, Any]], **more: Any) -> Path:
    document = {"schemaVersion": 1, "deviceProperties": [H100], **more, "traceEvents": events}
    path.write_text(json.dumps(document))
    return path
