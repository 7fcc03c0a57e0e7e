from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from proctor.runner.blocks import INFERRED
from proctor.runner.finish import Desk, finish
from proctor.runner.patience import patience, timely
from proctor.spec import ColumnsSpec, RegexTaskSpec
from proctor.tasks.registry import make_task

ENDLESS = ("^(a+)+$", "a" * 60 + "!")


def test_a_pattern_without_end_is_ended() -> None:
    with pytest.raises(TimeoutError, match=r"no end after 1 s"), patience(1.0):
        re.search(*ENDLESS)


def test_code_that_swallows_it_gets_it_again() -> None:
    swallowed = 0
    with patience(0.5):
        while swallowed < 2:
            try:
                threading.Event().wait()
            except TimeoutError:
                swallowed += 1
    assert swallowed == 2


def test_it_leaves_nothing_behind() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with patience(50):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is before


def test_an_answer_that_its_pattern_does_not_get_through_costs_its_own_row(tmp_path: Path) -> None:
    task = make_task(RegexTaskSpec(kind="regex", pattern=ENDLESS[0], prompt="?"), ColumnsSpec())
    rows = [{"row_id": i, "answer": text, "token_ids": []} for i, text in enumerate(["aa", ENDLESS[1], "aaa"])]
    (tally,) = finish(
        pa.Table.from_pylist(rows, schema=INFERRED), desk=Desk(str(tmp_path), "ck", 1, task, 1.0)
    ).to_pylist()
    assert (tally["rows"], tally["answered"], json.loads(tally["errors"])) == (3, 2, {"score.failed": 1})


HANGS = """
import ctypes, sys
from proctor.runner.patience import {name}
def endless():
    libc = ctypes.PyDLL(None)
    yield 1
    libc.sleep(600)
    yield 2
{code}
"""


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("timely", "for item in timely(endless(), 0.3): print(item, flush=True)"),
        ("patience", "with patience(0.06):\n    for item in endless(): print(item, flush=True)"),
    ],
)
def test_c_code_that_holds_the_interpreter_ends_with_its_process(name: str, code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGS.format(name=name, code=code)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "1\n")
    assert "in endless" in done.stderr


def test_time_that_the_taker_takes_does_not_count() -> None:
    taken = []
    for item in timely(range(3), 2.0):
        time.sleep(0.8)
        taken.append(item)
    assert taken == [0, 1, 2]
