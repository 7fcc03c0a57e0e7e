"""Tasks and a source that kill or hold up whoever works on certain rows. Workers import them."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from proctor.engines.faults import claim
from proctor.sources.base import ReadGroup, Source
from tests.runner.unruly import QUESTION, Calm


def segfault() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


class DeadlyPrompt(Calm):
    """The prompt of row 3 kills its worker."""

    def prompt(self, sample: Any) -> Any:
        if sample.row_id == 3:
            segfault()
        return QUESTION


class DeadlyMark(Calm):
    """The answer of row 9 kills its worker."""

    def parse(self, text: str) -> Any:
        if text.endswith(" 9"):
            segfault()
        return text


class EndlessPrompt(Calm):
    """The prompt of row 3 never ends, in C code that holds the interpreter."""

    def prompt(self, sample: Any) -> Any:
        if sample.row_id == 3:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})  # C code that looks at no signal
            ctypes.PyDLL(None).sleep(3600)
        return QUESTION


class DeadlySource:
    """Another source, one of whose rows kills its reader, raises, or kills it only the first time."""

    def __init__(self, source: Source, row: int, way: str, state: Path) -> None:
        self._source, self._row, self._way, self._state = source, row, way, state

    def expected(self) -> BitMap64:
        return self._source.expected()

    def columns(self) -> pa.Schema:
        return self._source.columns()

    def fingerprint(self) -> str:
        return self._source.fingerprint()

    def groups(self, todo: BitMap64, max_rows: int, max_bytes: int = 1 << 24) -> Sequence[ReadGroup]:
        return self._source.groups(todo, max_rows, max_bytes)

    def read(self, group: ReadGroup) -> Iterator[pa.Table]:
        if self._row in group.row_ids:
            self._strike()
        yield from self._source.read(group)

    def _strike(self) -> None:
        if self._way == "raise":
            raise RuntimeError("a reader's bug")
        if self._way == "once":
            try:
                self._state.touch(exist_ok=False)
            except FileExistsError:
                return
        segfault()


class DiesWriting(Calm):
    """Whoever marks the answers dies at the first draft of a part that appears, once."""

    def __init__(self, run_dir: str) -> None:
        self._run_dir = Path(run_dir)

    def parse(self, text: str) -> Any:
        if all(thread.name != "killer" for thread in threading.enumerate()):
            threading.Thread(target=self._wait_and_die, name="killer", daemon=True).start()
        return text

    def _wait_and_die(self) -> None:
        while not any((self._run_dir / "results").glob(".*.draft")):
            time.sleep(0.0002)
        if claim(str(self._run_dir), "died", 1):
            os.kill(os.getpid(), signal.SIGKILL)


class DiesThreeTimes(Calm):
    """Whoever marks row 9 dies the first three times: as often as Ray tries a task."""

    def __init__(self, run_dir: str) -> None:
        self._run_dir = run_dir

    def parse(self, text: str) -> Any:
        if text.endswith(" 9") and claim(self._run_dir, "died", 3):
            segfault()
        return text
