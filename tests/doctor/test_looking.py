"""Each check of the doctor, with and without what it looks for."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest

from proctor.capacity import machine
from proctor.doctor.engines import look_at_engine
from proctor.doctor.examination import examination
from proctor.doctor.findings import Check, Finding, examine
from proctor.doctor.gpus import judge, look_at_gpus, read
from proctor.doctor.machine import look_at_disk, look_at_limits, look_at_machine
from proctor.doctor.packages import look_at_packages, look_at_requires
from proctor.rows import UserError
from proctor.spec import RunSpec
from tests.doctor.test_versions import spec

GB = 10**9
TWO_GPUS = (
    "NVIDIA H100 80GB HBM3, 570.86.15, 81559, 4, Disabled\nNVIDIA H100 80GB HBM3, 570.86.15, 81559, 70000, Disabled"
)


def levels(found: Iterable[Finding]) -> dict[str, str]:
    return {finding.name: finding.level for finding in found}


def only(found: Iterable[Finding]) -> Finding:
    (finding,) = found
    return finding


def on_gpus(count: float, **keys: object) -> RunSpec:
    return spec({"kind": "transformers", "checkpoints": ["/m/one"], "gpus_per_replica": count, **keys})


def test_a_check_that_hangs_or_fails_costs_only_its_own_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "hunter2hunter2")
    monkeypatch.setenv("PWD", "/where/this/runs")
    over = threading.Event()

    def hangs() -> Iterable[Finding]:
        over.wait(60)
        return []

    def fails() -> Iterable[Finding]:
        raise OSError("no hunter2hunter2 at https://me:hunter2hunter2@host/")

    def refuses() -> Iterable[Finding]:
        yield Finding("b", "never told", "ok", "")
        raise UserError("none", where="here", fix="make one")

    def fine() -> Iterable[Finding]:
        yield Finding("d", "fine", "ok", "/where/this/runs/there")

    checks = [Check("a", "hangs", hangs), Check("b", "fails", fails, needed=True), Check("c", "refuses", refuses)]
    began = time.monotonic()
    found = examine([*checks, Check("d", "fine", fine)], 0.5)
    over.set()
    assert time.monotonic() - began < 30
    assert [(one.name, one.level) for one in found] == [
        ("hangs", "warning"), ("fails", "missing"), ("refuses", "warning"), ("fine", "ok"),
    ]  # fmt: skip
    assert found[0].what == "no answer within 0.5 s"
    assert "hunter2" not in str(found)
    assert found[3].what == "/where/this/runs/there"
    assert (found[2].what, found[2].fix) == ("here: none", "make one")


def test_gpus_are_read_and_judged() -> None:
    gpus = read(f"{TWO_GPUS}\nnonsense\nNVIDIA A100, with a comma, 570, [N/A], [N/A], Enabled")
    assert [(gpu.name, gpu.total, gpu.mig) for gpu in gpus[1:]] == [
        ("NVIDIA H100 80GB HBM3", 81559, False),
        ("NVIDIA A100, with a comma", 0, True),
    ]
    two = gpus[:2]
    found = list(judge(two, 2, None))
    assert found[0] == Finding("gpu", "GPUs", "ok", "2 x NVIDIA H100 80GB HBM3 86 GB, driver 570.86.15")
    assert found[1].what == "GPU 1: memory is taken already"
    assert levels(judge(gpus, 0, None))["MIG"] == "warning"
    assert [levels(judge(two, 2, visible))["GPUs"] for visible in ("0", "", "-1", "1,0", "0,-1,1", "0,1,2,3")] == [
        "missing", "missing", "missing", "ok", "missing", "ok",
    ]  # fmt: skip
    assert "the run needs 3" in next(iter(judge(two, 3, None))).what


@pytest.mark.parametrize(
    ("script", "level", "what"),
    [
        (f"cat <<'END'\n{TWO_GPUS}\nEND", "ok", "2 x NVIDIA H100"),
        ("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", "missing", "version mismatch"),
        ("exec sleep 60", "missing", "the driver hangs"),
        (None, "missing", "no nvidia-smi"),
    ],
)
def test_nvidia_smi_may_be_fine_broken_hanging_or_missing(
    script: str | None, level: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}")
    if script is not None:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    found = next(iter(look_at_gpus(on_gpus(2), 0.5 if script == "exec sleep 60" else 60)))
    assert found.level == level
    assert what in found.what
    assert bool(found.fix) is (level == "missing")


def test_a_run_without_gpus_or_on_a_cluster_needs_none_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    elsewhere = on_gpus(8).model_copy(update={"ray": spec(ray={"address": "auto"}).ray})
    for run in (None, spec(), elsewhere):
        assert only(look_at_gpus(run, 60)).level != "missing"


def test_memory_and_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_(memory: int, used: int, shm: int | None) -> list[Finding]:
        monkeypatch.setattr(machine, "memory_limit", lambda: memory)
        monkeypatch.setattr(machine, "memory_used", lambda: used)
        monkeypatch.setattr(machine, "shared_memory", lambda: shm)
        return list(look_at_machine())

    assert levels(with_(64 * GB, 10 * GB, 32 * GB)) == {"memory": "ok", "/dev/shm": "ok"}
    assert levels(with_(2 * GB, 1 * GB, 32 * GB)) == {"memory": "warning", "/dev/shm": "ok"}
    docker = with_(64 * GB, 10 * GB, 64 * 10**6)
    assert levels(docker) == {"memory": "ok", "/dev/shm": "warning"}
    assert docker[1].fix.startswith("docker run --shm-size=18g")
    assert levels(with_(64 * GB, 10 * GB, None))["/dev/shm"] == "warning"


def test_a_directory_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert only(look_at_disk()).level in ("ok", "warning")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    assert only(look_at_disk()).level == "missing"


def test_limits_and_permissions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _which: (1024, 4096))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert levels(look_at_limits(tmp_path)) == {"open files": "warning", "ptrace": "ok"}
    scope = tmp_path / "proc/sys/kernel/yama/ptrace_scope"
    scope.parent.mkdir(parents=True)
    scope.write_text("2\n")
    monkeypatch.setattr("resource.getrlimit", lambda _which: (-1, -1))
    assert levels(look_at_limits(tmp_path)) == {"open files": "ok", "ptrace": "warning"}


def test_what_proctor_requires(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {finding.level for finding in look_at_packages()} == {"ok"}
    declared = ["ray[data]>=99", "no-such-thing>=1", "other; sys_platform == 'win32'", "torch>=99; extra == 'x'"]
    monkeypatch.setattr(metadata, "requires", lambda _name: declared)
    found = [finding for finding in look_at_packages() if finding.level == "missing"]
    assert [finding.fix for finding in found] == ["pip install 'ray[data]>=99'", "pip install 'no-such-thing>=1'"]
    assert found[0].what.endswith("Proctor needs ray>=99")


def test_what_the_spec_requires() -> None:
    assert list(look_at_requires(spec())) == []
    assert only(look_at_requires(spec(requires={"ray": ">=2"}))).level == "ok"
    assert levels(look_at_requires(spec(requires={"ray": ">=99", "python": "3"}))) == {"requires.ray": "missing"}


@pytest.mark.parametrize(
    ("torch", "level", "what"),
    [
        ("class version:\n cuda = '13.0'\nclass cuda:\n device_count = staticmethod(lambda: 2)", "ok", "sees 2 GPU(s)"),
        ("class version:\n cuda = None\nclass cuda:\n device_count = staticmethod(lambda: 0)", "ok", "without CUDA"),
        ("raise ImportError('libcudart.so.13: cannot open shared object file')", "missing", "libcudart.so.13"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "missing", "importing: ended with -11"),
        ("import time; time.sleep(60)", "warning", "no answer within"),
    ],
)
def test_an_engines_library_is_imported_in_a_process_of_its_own(
    torch: str, level: str, what: str, tmp_path: Path
) -> None:
    for name, text in (("torch", f"print('noise')\n{torch}\n"), ("transformers", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(text)
    run = on_gpus(1, env={"PYTHONPATH": str(tmp_path)})
    found = list(look_at_engine("transformers", run, 8.0 if "sleep" in torch else 60.0))
    assert (found[0].level, what in found[0].what) == (level, True), found
    assert [one.name for one in found[1:]] == (["torch"] if "cuda = None" in torch else [])


def test_an_engine_that_is_not_installed_counts_only_for_a_run_that_needs_it() -> None:
    run = spec({"kind": "vllm", "python": "/no/such/python", "checkpoints": ["/m/one"]})
    assert levels(look_at_engine("vllm", run, 60)) == {"vllm": "missing"}
    beside = only(look_at_engine("vllm", None, 60))
    assert (beside.level, beside.fix) == ("absent", "pip install 'proctor[vllm]'")


def test_everything_for_a_run_is_looked_at(tmp_path: Path) -> None:
    source = {"kind": "jsonl", "path": str(tmp_path / "none"), "columns": {"prompt": "q"}}
    found = examination(spec(run_dir=str(tmp_path / "run"), source=source, requires={"ray": ">=2"}), seconds=60)
    by_name = levels(found)
    assert by_name["source.path"] == "missing"
    assert (by_name["run_dir"], by_name["requires"], by_name["ray"]) == ("ok", "ok", "ok")
    assert all(finding.fix for finding in found if finding.level == "missing")
