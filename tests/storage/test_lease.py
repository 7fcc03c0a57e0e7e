"""One driver at a time, shown with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from proctor.rows import UserError
from proctor.storage.base import Version
from proctor.storage.folder import Folder, open_folder
from proctor.storage.holder import Holder
from proctor.storage.lease import NAME, Lease, is_live, read_lease
from tests.storage.bucket import Bucket

_HOLDER = Path(__file__).with_name("holder.py")


def unexpected(reason: str) -> None:
    raise AssertionError(reason)


class Process:
    """A driver that holds, or is refused, the lease of a place."""

    def __init__(self, place: str, endpoint: str, ttl: float) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(_HOLDER), place, endpoint, str(ttl)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.line() == "ready"

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def say(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(params=["local", "s3"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[float], Process]]:
    """Starts drivers of one place."""
    endpoint, place = "", str(tmp_path / "run")
    if request.param == "s3":
        bucket: Bucket = request.getfixturevalue("bucket")
        endpoint, place = bucket.endpoint, bucket.url("run")
    started: list[Process] = []

    def begin(ttl: float) -> Process:
        started.append(Process(place, endpoint, ttl))
        return started[-1]

    yield begin
    for process in started:
        process.end()


@pytest.mark.slow
def test_a_second_driver_is_refused_and_the_next_one_is_let_in(start: Callable[[float], Process]) -> None:
    first, second, third = start(30), start(30), start(30)
    first.say()
    assert first.line() == "held"
    second.say()
    refused = second.line()
    pid = first.process.pid
    assert f"another driver is running here (pid {pid} on {os.uname().nodename} since 20" in refused
    assert "last heartbeat 20" in refused
    assert "\n" not in refused
    first.say()
    assert first.process.wait(timeout=60) == 0
    third.say()
    assert third.line() == "held"


@pytest.mark.slow
def test_the_lease_of_a_killed_driver_of_this_machine_is_taken_at_once(start: Callable[[float], Process]) -> None:
    first, second = start(3600), start(3600)
    first.say()
    assert first.line() == "held"
    first.end()
    second.say()
    assert second.line() == "held"


@pytest.mark.slow
def test_of_many_drivers_that_start_together_exactly_one_gets_in(start: Callable[[float], Process]) -> None:
    drivers = [start(3600) for _ in range(4)]
    for driver in drivers:
        driver.say()
    told = [driver.line() for driver in drivers]
    assert [line.partition(":")[0] for line in told].count("held") == 1
    assert [line.partition(":")[0] for line in told].count("refused") == 3


@pytest.mark.slow
def test_of_many_drivers_that_find_a_dead_one_exactly_one_gets_in(start: Callable[[float], Process]) -> None:
    dead, *drivers = [start(3600) for _ in range(4)]
    dead.say()
    assert dead.line() == "held"
    dead.end()
    for driver in drivers:
        driver.say()
    assert sorted(driver.line().partition(":")[0] for driver in drivers) == ["held", "refused", "refused"]


def stranger(folder: Folder, **changes: object) -> tuple[Holder, Version]:
    """Somebody on another machine holds the lease."""
    holder = msgspec.structs.replace(Holder.me(0.5), host="elsewhere", boot="other", **changes)
    folder.prepare()
    version = folder.create(NAME, msgspec.json.encode(holder))
    assert version is not None
    return holder, version


def test_a_silent_holder_elsewhere_loses_its_lease_after_its_ttl(folder: Folder) -> None:
    holder, _ = stranger(folder, time=time.time() + 1e6)  # its clock is wrong, and plays no part
    began = time.monotonic()
    lease = Lease(folder, unexpected, ttl=0.5)
    with lease.held():
        assert time.monotonic() - began >= 0.5
        assert lease.before == holder
        assert is_live(folder)
    assert not is_live(folder)


def test_a_holder_elsewhere_with_a_heartbeat_is_left_alone(folder: Folder) -> None:
    holder, version = stranger(folder)
    stop = threading.Event()

    def beat() -> None:
        current, sequence = version, 0
        while not stop.wait(0.1):
            sequence += 1
            data = msgspec.json.encode(msgspec.structs.replace(holder, sequence=sequence))
            current = folder.replace(NAME, data, current) or current

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        with pytest.raises(UserError, match=r"another driver is running here \(pid \d+ on elsewhere"):
            Lease(folder, unexpected, ttl=5.0).acquire()
    finally:
        stop.set()
        thread.join()
    found = read_lease(folder)
    assert found is not None
    assert found.nonce == holder.nonce


def test_a_document_that_nobody_can_read_gives_way_after_the_ttl(folder: Folder) -> None:
    folder.write(NAME, b"{")
    with Lease(folder, unexpected, ttl=0.3).held():
        assert is_live(folder)


def test_a_heartbeat_keeps_the_lease(folder: Folder) -> None:
    with Lease(folder, unexpected, ttl=0.6).held():
        first = read_lease(folder)
        time.sleep(1.5)
        later = read_lease(folder)
    released = read_lease(folder)
    assert first is not None
    assert later is not None
    assert released is not None
    assert (first.nonce, released.nonce) == (later.nonce, later.nonce)
    assert later.sequence > first.sequence
    assert (later.released, released.released) == (False, True)


def test_a_holder_learns_once_that_another_has_taken_its_lease(folder: Folder) -> None:
    told: list[str] = []
    learned = threading.Event()

    def on_lost(reason: str) -> None:
        told.append(reason)
        learned.set()

    with Lease(folder, on_lost, ttl=0.6).held():
        other = msgspec.structs.replace(Holder.me(30.0), host="elsewhere", boot="other")
        folder.write(NAME, msgspec.json.encode(other))
        assert learned.wait(30)
        time.sleep(0.5)
    assert len(told) == 1
    assert f"is lost: another driver has taken it (pid {os.getpid()} on elsewhere" in told[0]
    kept = read_lease(folder)
    assert kept is not None
    assert kept.nonce == other.nonce


def test_a_holder_that_cannot_renew_learns_that_it_has_lost(bucket: Bucket) -> None:
    told: list[str] = []
    learned = threading.Event()

    def on_lost(reason: str) -> None:
        told.append(reason)
        learned.set()

    folder = open_folder(bucket.url("run"), bucket.options)
    with Lease(folder, on_lost, ttl=1.0).held():
        bucket.refuse["PUT"] = 1.0
        began = time.monotonic()
        assert learned.wait(30)
        assert time.monotonic() - began > 0.3
    assert len(told) == 1
    assert told[0].startswith(
        "the lease of s3://bucket/run could not be renewed for 1 s: cannot write s3://bucket/run/"
    )
    assert "503 Service Unavailable" in told[0]


@pytest.mark.slow
def test_a_storm_of_503s_does_not_cost_the_lease(bucket: Bucket) -> None:
    bucket.refuse = {"PUT": 0.5, "GET": 0.5}
    folder = open_folder(bucket.url("run"), bucket.options)
    with Lease(folder, unexpected, ttl=6.0).held():
        time.sleep(8)
        found = read_lease(open_folder(bucket.url("run"), bucket.options))
    assert found is not None
    assert found.sequence >= 2


def test_a_lease_whose_answer_was_lost_is_not_mistaken_for_anothers(bucket: Bucket) -> None:
    folder = open_folder(bucket.url("run"), bucket.options)
    bucket.lose_answers = 3
    with Lease(folder, unexpected, ttl=0.6).held():
        bucket.lose_answers = 1
        time.sleep(1)
    found = read_lease(folder)
    assert found is not None
    assert found.released


def test_storage_that_ignores_conditions_is_refused(bucket: Bucket) -> None:
    bucket.conditions = False
    folder = open_folder(bucket.url("run"), bucket.options)
    with pytest.raises(UserError, match=r"^s3://bucket/run: this storage does not keep conditions of writes"):
        Lease(folder, unexpected).acquire()


@pytest.mark.slow
def test_a_stopped_driver_of_this_machine_is_not_taken_for_dead(start: Callable[[float], Process]) -> None:
    first, second = start(1), start(1)
    first.say()
    assert first.line() == "held"
    first.process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(2)
        second.say()
        assert second.line().startswith("refused: ")
    finally:
        first.process.send_signal(signal.SIGCONT)
