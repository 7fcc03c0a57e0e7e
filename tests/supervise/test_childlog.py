from __future__ import annotations

import os
from pathlib import Path

import pytest

from proctor.supervise import childlog
from proctor.supervise.childlog import ChildLog


def test_last_lines_are_those_of_the_present_process(tmp_path: Path) -> None:
    log = ChildLog(tmp_path / "new" / "engine.log")
    log.begin("start 1")
    os.write(log.descriptor, b"of the first\n")
    log.begin("start 2")
    assert log.last_lines() == ""
    os.write(log.descriptor, b"one\n\n  two \xff\nthree\nfour\nfive\n")
    assert log.last_lines(3) == "three | four | five"
    assert "of the first" in log.path.read_text(errors="replace")
    log.close()


def test_a_log_does_not_grow_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(childlog, "MAX_BYTES", 1000)
    monkeypatch.setattr(childlog, "KEPT_BYTES", 100)
    log = ChildLog(tmp_path / "engine.log")
    log.begin("start 1")
    with os.fdopen(os.dup(log.descriptor), "wb", buffering=0) as child:
        for number in range(500):
            child.write(b"line %d\n" % number)
            log.trim()
            assert log.path.stat().st_size <= 1100
    assert log.last_lines(2) == "line 498 | line 499"
    log.close()
