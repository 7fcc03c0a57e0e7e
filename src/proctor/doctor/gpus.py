"""GPUs and their driver, as ``nvidia-smi`` tells them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from proctor.doctor.findings import Finding
from proctor.spec import RunSpec

_FIELDS = ("name", "driver_version", "memory.total", "memory.used", "mig.mode.current")
_BUSY = 0.1
"""Share of a GPU's memory above which somebody else is at work there."""


class Gpu(NamedTuple):
    """A GPU. Memory in MiB."""

    name: str
    driver: str
    total: int
    used: int
    mig: bool


def look_at_gpus(spec: RunSpec | None, seconds: float) -> Iterator[Finding]:
    """The GPUs here, and whether they are as many as a run on this machine needs."""
    need = 0.0 if spec is None or spec.ray.address is not None else spec.engines_at_once * spec.engine.gpus_per_replica
    command = shutil.which("nvidia-smi")
    if command is None:
        devices = [path.name for path in Path("/dev").glob("nvidia[0-9]*")]
        what = f"{len(devices)} in /dev, but no nvidia-smi" if devices else "none (no nvidia-smi)"
        fix = "install the NVIDIA driver, or run the container with --gpus all" if need or devices else ""
        yield Finding("gpu", "GPUs", "missing" if need else "warning" if devices else "absent", what, fix)
        return
    query = [command, f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        what = f"nvidia-smi does not answer within {seconds:g} s: the driver hangs"
        yield Finding("gpu", "GPUs", "missing" if need else "warning", what, "look at `dmesg | grep -i xid`; reboot")
        return
    if done.returncode:
        said = (done.stdout or done.stderr).strip().splitlines() or [f"exit code {done.returncode}"]
        fix = "the kernel module and the driver's libraries have to be of one version: reboot, or install it again"
        yield Finding("gpu", "GPUs", "missing" if need else "warning", f"nvidia-smi: {said[0]}", fix)
        return
    yield from judge(read(done.stdout), need, os.environ.get("CUDA_VISIBLE_DEVICES"))


def read(text: str) -> list[Gpu]:
    """Reads what ``nvidia-smi`` prints; a line that is not so is left out, a figure that it cannot give is 0."""
    found = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.rsplit(",", len(_FIELDS) - 1)]
        if len(parts) == len(_FIELDS):
            name, driver, total, used, mig = parts
            found.append(Gpu(name, driver, _number(total), _number(used), mig == "Enabled"))
    return found


def judge(gpus: list[Gpu], need: float, visible: str | None) -> Iterator[Finding]:
    """What these GPUs mean for a run that needs `need` of them; `visible` is ``CUDA_VISIBLE_DEVICES``."""
    seen = len(gpus) if visible is None else _named(visible)
    if not any(gpu.mig for gpu in gpus):  # of a card with MIG, several slices may be named
        seen = min(seen, len(gpus))
    kinds = Counter(f"{gpu.name} {_gigabytes(gpu)}" for gpu in gpus)
    what = ", ".join(f"{count} x {name}" for name, count in kinds.items()) or "none"
    if gpus:
        what += f", driver {gpus[0].driver}"
    if visible is not None:
        what += f"; CUDA_VISIBLE_DEVICES={visible} leaves {seen}"
    if seen < need:
        less = "lower engine.replicas or engine.gpus_per_replica"
        fix = less if seen else "run where there are GPUs, or on a cluster"
        yield Finding("gpu", "GPUs", "missing", f"{what}; the run needs {need:g}", fix)
    else:
        yield Finding("gpu", "GPUs", "ok" if gpus else "absent", what)
    busy = [str(place) for place, gpu in enumerate(gpus) if gpu.total and gpu.used > _BUSY * gpu.total]
    if busy:
        what = f"GPU {', '.join(busy)}: memory is taken already"
        yield Finding(
            "gpu", "in use", "warning", what, "nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv"
        )
    if any(gpu.mig for gpu in gpus):
        what = "MIG is on: Ray counts whole GPUs, an engine sees slices"
        yield Finding("gpu", "MIG", "warning", what, "name the slices in CUDA_VISIBLE_DEVICES before Ray starts")


def _named(visible: str) -> int:
    """How many GPUs ``CUDA_VISIBLE_DEVICES`` names; CUDA itself stops at the first that is none."""
    names = [part.strip() for part in visible.split(",")]
    return next((place for place, name in enumerate(names) if name in ("", "-1")), len(names))


def _gigabytes(gpu: Gpu) -> str:
    return f"{gpu.total * 1.048576e6 / 1e9:.0f} GB"


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
