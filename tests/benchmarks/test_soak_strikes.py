"""What the soak's faults hit: the processes with its mark, and no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from benchmarks.faults.processes import MARK
from benchmarks.soak.aftermath import Evidence, by_kind, follow
from benchmarks.soak.keeper import Life
from benchmarks.soak.samples import Sample
from benchmarks.soak.schedule import Strike
from benchmarks.soak.strikes import Chaos, Struck
from proctor.rows import Event


def sleeper(mark: str, *words: str) -> subprocess.Popen[bytes]:
    """A process that sleeps, with `words` in its command line."""
    code = "import time; print(flush=True); time.sleep(600)"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words], env={**os.environ, MARK: mark}, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()  # from now on its command line and environment are its own
    return process


@pytest.fixture
def two() -> Iterator[list[subprocess.Popen[bytes]]]:
    """An engine of this soak, and one of another."""
    own = f"test-{os.getpid()}"
    processes = [sleeper(own, "supervise/entry.py"), sleeper(f"{own}-other", "supervise/entry.py")]
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("kind", "number"), [("engine.kill", signal.SIGKILL), ("engine.segv", signal.SIGSEGV)])
def test_a_signal_hits_an_engine_of_the_soak_and_no_other(
    two: list[subprocess.Popen[bytes]], tmp_path: Path, kind: str, number: signal.Signals
) -> None:
    mine, other = two
    struck = Chaos(tmp_path, None).strike(Strike(1.0, kind, 0.99), f"test-{os.getpid()}", 1, lambda: True)
    assert (struck.pid, struck.engine) == (mine.pid, f":{os.getpid()}")
    assert mine.wait(timeout=10) == -number
    assert other.poll() is None


def test_a_stopped_engine_stays_there(two: list[subprocess.Popen[bytes]], tmp_path: Path) -> None:
    struck = Chaos(tmp_path, None).strike(Strike(1.0, "engine.stop", 0.0), f"test-{os.getpid()}", 1, lambda: True)
    assert struck.target is not None
    deadline = time.monotonic() + 10
    while psutil.Process(two[0].pid).status() != psutil.STATUS_STOPPED:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert psutil.Process(two[1].pid).status() != psutil.STATUS_STOPPED


def test_without_a_target_nothing_is_hit(tmp_path: Path) -> None:
    struck = Chaos(tmp_path, None).strike(Strike(1.0, "hub.kill", 0.5), "nobody has this mark", 1, lambda: True)
    full = Chaos(tmp_path, None).strike(Strike(1.0, "disk.full", 0.5), "nobody has this mark", 1, lambda: True)
    assert (struck.target, full.target, full.followed) == (None, None, "not possible here")


@pytest.mark.parametrize(("kind", "sizes"), [("cut.part", (100, 10, 300)), ("cut.event", (100, 20, 297))])
def test_a_cut_takes_half_of_the_newest_part_or_of_the_last_event(
    tmp_path: Path, kind: str, sizes: tuple[int, int, int]
) -> None:
    old, new, events = (
        tmp_path / "results/part-a.parquet",
        tmp_path / "results/part-b.parquet",
        tmp_path / "events.jsonl",
    )
    old.parent.mkdir()
    old.write_bytes(b"x" * 100)
    os.utime(old, (1, 1))
    new.write_bytes(b"x" * 20)
    events.write_bytes(b"y" * 293 + b"\n" + b"12345\n")
    driver = sleeper(mark := f"cut-{os.getpid()}", " -m proctor run ")
    chaos = Chaos(tmp_path, None)
    struck = chaos.strike(Strike(1.0, kind, 0.0), mark, 1, lambda: True)
    assert driver.wait(timeout=10) == -signal.SIGKILL
    assert driver.stdout is not None
    driver.stdout.close()
    chaos.cut()
    chaos.cut()  # it happens once
    assert struck.followed == "then half of it was gone"
    assert (old.stat().st_size, new.stat().st_size, events.stat().st_size) == sizes


def test_what_followed_is_told_from_events_and_samples() -> None:
    def struck(kind: str, at: float, pid: int, engine: str | None = None) -> Struck:
        return Struck(Strike(at, kind, 0.0), at, 1, "x", engine, pid=pid)

    faults = [
        struck("engine.kill", 10.0, 5, ":4"),
        struck("hub.kill", 20.0, 7),
        struck("driver.int", 40.0, 1),
        Struck(Strike(5.0, "actor.kill", 0.0), 5.0, 1, None),
    ]
    events = [
        Event("engine.crashed", time=10.2, engine="host:9"),
        Event("engine.crashed", time=10.4, engine="host:4"),
        Event("engine.loaded", time=12.0, engine="host:4"),
        Event("engine.loaded", time=70.0, engine="host:44"),
    ]
    samples = [Sample(t, 0, "hub", p, 1, 1, 1) for t, p in ((19.0, (7, 1.0)), (21.0, (7, 1.0)), (24.0, (8, 23.0)))]
    lives = [Life(1, 0.0, 0, ended="exit 130", code=130, until=41.0)]
    follow(faults, Evidence(events, samples, lives))
    assert [(fault.followed, fault.recovery_s) for fault in faults] == [
        ("engine.crashed", 2.0),
        ("a new hub", 4.0),
        ("exit 130", 30.0),
        ("no target", None),
    ]
    (line,) = [line for line in by_kind(faults) if line["kind"] == "actor.kill"]
    assert line == {"kind": "actor.kill", "turns": 1, "hit": 0, "followed": {"no target": 1}, "recovery_s": None}
