from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from proctor.engines import surroundings
from proctor.engines.surroundings import Gpu, look
from proctor.rows import UserError


def test_the_interpreter_says_what_it_has_without_importing_it() -> None:
    site = look("transformers", sys.executable)
    assert site.python == platform.python_version()
    assert site.cpus >= 1
    assert set(site.versions) - set(site.packages) == {"python"}
    for name, package in site.packages.items():
        assert (Path(package.home) / "__init__.py").is_file(), name
    assert site.home("no such package") is None


def test_an_engine_without_packages_asks_nobody() -> None:
    assert look("scripted", "/no/such/python").python == platform.python_version()


def test_an_interpreter_that_cannot_be_run_is_the_users_mistake() -> None:
    with pytest.raises(UserError, match=r"engine.python: /no/such/python cannot say what is installed"):
        look("vllm", "/no/such/python")


def test_gpus_are_those_that_the_drivers_tool_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA H200, 9.0'\necho 'NVIDIA L4, 8.9'\necho 'odd, [N/A]'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert surroundings._gpus() == (Gpu("NVIDIA H200", 9.0), Gpu("NVIDIA L4", 8.9))
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert surroundings._gpus() == ()
    monkeypatch.setenv("PATH", "/nowhere")
    assert surroundings._gpus() == ()
