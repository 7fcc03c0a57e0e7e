"""Each case in a process of its own: what is declared to torch stays declared."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec._core
import pytest

pytestmark = [pytest.mark.model, pytest.mark.slow]

DECLARE = (
    "from proctor.engines.torchvision_shim import declare_missing_operators as declare; print(declare(), declare())"
)
"""Declares twice, as an engine's check() and load() do."""
CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import torchvision'], check=True)"


def torchvision_with(library: bytes | Path, home: Path) -> Path:
    """A package that demands its operators on import, as torchvision does, with `library` as its native part."""
    package = home / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text("import torch\nprint(torch.ops.torchvision.nms.default._schema)\n")
    if isinstance(library, Path):
        shutil.copy(library, package / "_C.so")
    else:
        (package / "_C.so").write_bytes(library)
    return home


def run(code: str, *path: Path) -> list[str]:
    places = [str(Path(__file__).parents[2] / "src"), *map(str, path)]
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(places)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_library_that_cannot_load_is_stood_in_for(tmp_path: Path):
    home = torchvision_with(b"not a library", tmp_path)
    printed = run(f"{DECLARE}; import torchvision; {CHILD}", home)
    schema = "torchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    assert printed == ["True False", schema, schema]


def test_a_library_that_loads_is_left_alone(tmp_path: Path):
    """A second declaration beside a real one would abort the process."""
    home = torchvision_with(Path(msgspec._core.__file__), tmp_path)
    code = f"{DECLARE}; import torch; print(hasattr(torch.ops.torchvision, 'nms'))"
    assert run(code, home) == ["False False", "False"]


def test_without_torchvision_nothing_happens():
    code = f"import sys; sys.modules['torchvision'] = None; {DECLARE}; print('torch' in sys.modules)"
    assert run(code) == ["False False", "False"]


def test_the_hook_runs_the_sitecustomize_that_it_hides(tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text("print('theirs')\n")
    hook = Path(__file__).parents[2] / "src" / "proctor" / "engines" / "torchvision_site"
    done = subprocess.run(
        [sys.executable, "-c", "print('main')"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(hook), str(tmp_path)])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["theirs", "main"]
    assert done.stderr == ""
