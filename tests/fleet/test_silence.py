"""Since when a unit has not got on; and whose driver may be killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from proctor.fleet.act import kill_driver
from proctor.fleet.silence import Clocks, Silence, mark_of
from proctor.storage.folder import open_folder


def test_silence_outlasts_watchers_and_clocks_that_are_set(tmp_path: Path) -> None:
    folder = open_folder(str(tmp_path))
    noon = Clocks(1_000_000.0, 500.0, "boot")
    first = Silence(folder)
    assert first.of("a", "x", noon) == 0.0
    assert first.of("a", "x", noon._replace(ticks=600.0, time=5.0)) == 100.0  # the wall clock was set
    first.save()
    second = Silence(folder)
    assert second.of("a", "x", noon._replace(ticks=700.0, time=9e9)) == 200.0
    assert second.of("a", "x", Clocks(1_000_050.0, 1.0, "rebooted")) == 50.0
    assert second.of("a", "x", Clocks(999_000.0, 1.0, "rebooted")) == 0.0
    assert second.of("a", "y", noon) == 0.0
    (tmp_path / "progress.json").write_text("{")
    assert Silence(folder).of("a", "x", noon) == 0.0


def test_only_rows_are_progress() -> None:
    checkpoint = {"done": 3, "answered": 3, "retries": {"lost": 1}}
    status = {"time": 1.0, "events": {"engine.crashed": 1}, "checkpoints": {"a": checkpoint}, "active": ["a", 1]}
    mark = mark_of(1, "RUNNING", status)
    assert mark == mark_of(1, "RUNNING", {**status, "time": 2.0, "events": {"engine.crashed": 9}})
    others = [
        mark_of(2, "RUNNING", status),
        mark_of(1, "PENDING", status),
        mark_of(1, "RUNNING", {**status, "active": ["a", 2]}),
        mark_of(1, "RUNNING", {**status, "checkpoints": {"a": {**checkpoint, "done": 4}}}),
        mark_of(1, "RUNNING", None),
    ]
    assert len({mark, *others}) == 6
    assert mark_of(1, "", {"checkpoints": {"a": 5}}) == mark_of(1, "", {"checkpoints": {"a": None}})


def test_only_a_units_own_driver_is_ever_killed(tmp_path: Path) -> None:
    text = (
        "import sys, time; from proctor.storage.lease import Lease; from proctor.storage.folder import open_folder\n"
        "lease = Lease(open_folder(sys.argv[-1]), print); lease.acquire(); print('held', flush=True); time.sleep(600)"
    )

    def holding(folder: Path, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", text, *words, str(folder)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    unit, person = holding(tmp_path / "unit", "fleet", "unit", "DIR", "a"), holding(tmp_path / "person", "run", "a")
    try:
        assert not kill_driver(open_folder(str(tmp_path / "nobody")), "a")
        assert not kill_driver(open_folder(str(tmp_path / "person")), "a")
        assert not kill_driver(open_folder(str(tmp_path / "unit")), "b")
        assert kill_driver(open_folder(str(tmp_path / "unit")), "a")
        assert unit.wait(60) == -9
        assert person.poll() is None
    finally:
        for process in (unit, person):
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
