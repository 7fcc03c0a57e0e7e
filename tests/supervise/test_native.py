"""pystack at work on real processes, willing and not."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from proctor.supervise import native
from proctor.supervise.native import native_stacks
from tests.supervise.helpers import wait_until

NAP = """
import sys, time
def take_a_nap():
    print("ready", flush=True)
    time.sleep(100)
take_a_nap()
"""
TRACED = "import ctypes; ctypes.CDLL(None).ptrace(0, 0, 0, 0)\n" + NAP
BEAT = """
import sys, time
print("ready", flush=True)
for beat in range(100_000):
    sys.stdout.write("b")
    sys.stdout.flush()
    time.sleep(0.01)
"""


@contextmanager
def running(script: str, python: str = sys.executable) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([python, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                pytest.skip(f"{python} does not run here")
            yield process
        finally:
            process.kill()


def check_nap(pid: int) -> None:
    (told,) = native_stacks([pid])
    assert told.startswith(f"Native stacks of process {pid}:\n")
    assert "in take_a_nap" in told
    assert "(C)" in told
    assert "nanosleep" in told


def test_stacks_hold_python_and_native_frames() -> None:
    with running(NAP) as process:
        check_nap(process.pid)


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_the_process_may_run_another_python(version: str) -> None:
    python = shutil.which(f"python{version}")
    if python is None:
        pytest.skip(f"there is no python{version} on the path")
    with running(NAP, python) as process:
        check_nap(process.pid)


def test_several_processes_are_read_at_once_and_each_failure_is_named() -> None:
    with running(NAP) as first, running(NAP) as second, subprocess.Popen(["sleep", "100"]) as other:
        try:
            told = native_stacks([first.pid, other.pid, second.pid, 1 << 30])
        finally:
            other.kill()
    assert ["in take_a_nap" in text for text in told] == [True, False, True, False]
    assert told[1].startswith(f"Native stacks of process {other.pid}:\n(no native stacks: ")
    assert told[3].startswith(f"Native stacks of process {1 << 30}:\n(no native stacks: ")


def test_a_process_that_may_not_be_traced_is_named_with_the_cure() -> None:
    with running(TRACED) as process:
        (told,) = native_stacks([process.pid])
    assert "(no native stacks: " in told
    assert "not permitted" in told
    assert "SYS_PTRACE" in told
    assert "yama" in told


VFORK = """
import ctypes
libc = ctypes.PyDLL(None)
def call_the_driver():
    print("ready", flush=True)
    if libc.vfork() == 0:  # the parent waits in the kernel, and can neither be stopped nor run a signal handler
        while True:
            libc.pause()
call_the_driver()
"""


@pytest.mark.slow
def test_of_a_process_inside_the_kernel_the_python_frames_are_read() -> None:
    with running(VFORK) as process:
        wait_until(lambda: "\tD" in Path(f"/proc/{process.pid}/status").read_text())
        (child,) = psutil.Process(process.pid).children()
        try:
            (told,) = native_stacks([process.pid], seconds=4.0)
        finally:
            child.kill()
    assert "(no native stacks: pystack was not done within 4 s)" in told
    assert "in call_the_driver" in told


def test_a_reader_that_is_given_up_leaves_the_process_running() -> None:
    with running(BEAT) as process:
        assert process.stdout is not None
        for tenths in range(8):
            (told,) = native_stacks([process.pid], seconds=tenths / 20)
            assert ("was not done within" in told) or "(C)" in told
        assert "was not done within 0 s" in native_stacks([process.pid], seconds=0.0)[0]
        time.sleep(0.2)
        beats = process.stdout.read1(1 << 20)  # type: ignore[attr-defined]
        assert beats.count(b"b") > 0
        assert process.stdout.read(20) == b"b" * 20


def test_there_is_an_end_to_processes_and_to_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "MOST_PROCESSES", 1)
    monkeypatch.setattr(native, "MOST_BYTES", 300)
    with running(NAP) as process:
        told = native_stacks([process.pid, process.pid, process.pid])
    assert told[1:] == ["(2 more processes were not read)"]
    assert len(told[0]) < 500
    assert "bytes more)" in told[0]


def test_without_pystack_the_dump_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "find_spec", lambda name: None)
    assert native_stacks([1]) == ["(no native stacks: pystack is not installed)"]
