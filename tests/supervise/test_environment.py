"""The child's side runs in an environment that is not Proctor's."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from proctor.engines import EngineConfig
from proctor.rows import UserError
from proctor.supervise import preflight
from proctor.supervise.process import ENTRY
from tests.supervise.helpers import Supervised, failures, scripted

Start = Callable[..., Supervised]

BLOCK = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ImportError("blocked: " + name)

sys.meta_path.insert(0, Block())
"""
NOT_FOR_CHILDREN = (
    "duckdb", "jinja2", "numpy", "pandas", "PIL", "psutil", "pyarrow", "pydantic", "pyroaring", "ray", "rich", "scipy",
    "structlog", "tenacity", "torch", "typer", "xxhash", "yaml",
)  # fmt: skip


@pytest.fixture
def foreign_python(tmp_path: Path) -> str:
    """An interpreter of an environment that has msgspec and nothing else."""
    home = tmp_path / "other"
    site = home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    site.mkdir(parents=True)
    (home / "bin").mkdir()
    (home / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix) / 'bin'}\ninclude-system-site-packages = false\n")
    python = home / "bin" / "python"
    python.symlink_to(Path(sys.executable).resolve())
    spec = importlib.util.find_spec("msgspec")
    assert spec is not None
    assert spec.origin is not None
    (site / "msgspec").symlink_to(Path(spec.origin).parent)
    return str(python)


def test_the_child_imports_nothing_that_an_engine_may_lack(supervise: Start, tmp_path: Path) -> None:
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(BLOCK.format(blocked=NOT_FOR_CHILDREN))
    one = supervise(scripted(tmp_path), env={"PYTHONPATH": str(hook)}, init_attempts=1)
    assert failures(one.answers(range(5))) == {}


def test_the_hook_blocks(supervise: Start, tmp_path: Path) -> None:
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(BLOCK.format(blocked=("msgspec",)))
    one = supervise(scripted(tmp_path), env={"PYTHONPATH": str(hook)}, init_attempts=1)
    assert "blocked: msgspec" in one.wait_for("breaker.opened").message


def test_an_engine_in_another_environment(
    supervise: Start, tmp_path: Path, foreign_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "ours"))
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "msgspec.py").write_text("raise ImportError('of the wrong environment')")
    preflight(scripted(tmp_path), foreign_python, {})
    one = supervise(scripted(tmp_path), python=foreign_python, init_attempts=1)
    assert failures(one.answers(range(5))) == {}


def test_processes_that_the_engine_spawns_find_the_package(tmp_path: Path, foreign_python: str) -> None:
    # What `multiprocessing` does in a process that it spawns: the main module again, under another name.
    script = (
        f"import runpy, sys; runpy.run_path({str(ENTRY)!r}, run_name='__mp_main__')\n"
        "import proctor.rows; print(proctor.__file__, 'proctor.supervise.child' in sys.modules)"
    )
    done = subprocess.run(
        [foreign_python, "-P", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(ENTRY.parents[1] / "__init__.py"), "False"]


def test_preflight_passes_what_is_right(tmp_path: Path) -> None:
    preflight(scripted(tmp_path))
    assert not (tmp_path / "stalls").exists()


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (EngineConfig("scripted", options={"answers": {"x": "y"}}), "engine.answers: 'x' is not a row id"),
        (EngineConfig("scripted", options={"row_ms": "fast"}), r"engine.options: Expected `float`, got `str`"),
        (EngineConfig("abacus"), "engine.kind: there is no engine 'abacus'"),
        (EngineConfig("scripted", options={"load_failures": 1}), "engine: the engine cannot start: ValueError"),
    ],
)
def test_preflight_says_what_is_wrong(config: EngineConfig, says: str) -> None:
    with pytest.raises(UserError, match=says):
        preflight(config)


def test_preflight_names_an_interpreter_that_cannot_be_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"engine\.python: cannot run .*: No such file"):
        preflight(scripted(tmp_path), str(tmp_path / "python"))


def test_preflight_quotes_a_child_that_cannot_start(tmp_path: Path) -> None:
    (tmp_path / "msgspec.py").write_text("raise ImportError('no msgspec here')")
    with pytest.raises(UserError, match="no msgspec here"):
        preflight(scripted(tmp_path), env={"PYTHONPATH": str(tmp_path)})
