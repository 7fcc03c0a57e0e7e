from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess

import pytest

from proctor.supervise import wire
from proctor.supervise.companions import Companions
from tests.supervise.helpers import wait_until


@pytest.fixture
def process() -> Iterator[BaseProcess]:
    started = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(100,), name="Worker")
    started.start()
    yield started
    started.kill()
    started.join()


def kill(process: BaseProcess) -> int:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    return process.pid


def test_the_end_of_a_process_is_told(process: BaseProcess) -> None:
    told: list[wire.Fallen] = []
    companions = Companions()
    companions.watch(told.append)
    assert companions.fallen(0.0) is None
    pid = kill(process)
    wait_until(lambda: bool(told), seconds=10)
    assert told == [wire.Fallen("Worker", pid, -signal.SIGKILL)]
    assert companions.fallen(0.0) == told[0]


def test_after_release_they_may_end(process: BaseProcess) -> None:
    told: list[wire.Fallen] = []
    companions = Companions()
    companions.watch(told.append)
    companions.release()
    kill(process)
    assert companions.fallen(10.0) is not None
    time.sleep(0.5)
    assert told == []
