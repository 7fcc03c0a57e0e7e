"""Runs over data in object storage that fails: what passes costs nothing, what stays costs the rows it hits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.api import run
from proctor.rows import UserError
from proctor.spec import RunSpec
from tests.faults.helpers import mds_spec, records_of
from tests.faults.proxy import Fault, FaultProxy
from tests.faults.shards import PLAIN, ROWS, Shard, all_rows, expected, nothing, write_dataset

hadro = pytest.importorskip("hadro")
pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("local_ray")]

HASHED = {"hashes": ["xxh64"]}


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[FaultProxy]:
    """A proxy in front of an S3 server whose buckets are the folders of ``s3`` in the test's directory."""
    (tmp_path / "s3").mkdir()
    with hadro.Server(data=str(tmp_path / "s3")) as server, FaultProxy(server.endpoint) as proxy:
        yield proxy


def spec_of(tmp_path: Path, endpoint: str, **parts: Any) -> RunSpec:
    """A run over ``s3://bucket/data`` to which a fault that stays is known after a few tries."""
    storage = {"endpoint": endpoint, "anonymous": True, "attempts": 4, "read_seconds": 1.0, **parts.pop("storage", {})}
    return mds_spec(tmp_path / "run", "s3://bucket/data", storage=storage, **parts)


def in_shard(number: int) -> str:
    """The end of the key of a shard's file."""
    return f"/{number:02}/{PLAIN}"


def test_faults_that_pass_cost_nothing(tmp_path: Path, proxy: FaultProxy) -> None:
    names = ["sound", "storm", "storm of HEAD", "cut", "cut often", "stalled", "dripping", "flipped once", "refused"]
    shards = [Shard(name, nothing, options=HASHED) for name in names]
    write_dataset(tmp_path / "s3" / "bucket" / "data", shards)
    proxy.faults = [
        Fault(in_shard(1), "status", status=503, times=3),
        Fault(in_shard(2), "status", status=500, times=3, methods=("HEAD",)),
        Fault(in_shard(3), "cut", at=0, times=1),
        Fault(in_shard(4), "cut", at=500, times=3),
        Fault(in_shard(5), "stall", at=1000, times=1),
        Fault(in_shard(6), "drip", at=1000, seconds=0.3, times=1),
        Fault(in_shard(7), "flip", at=3000, times=1),
        Fault(in_shard(8), "status", status=429, times=2),
        Fault("index.json", "status", status=503, times=2, methods=("HEAD", "GET")),
        Fault("index.json", "cut", at=300, times=1),
    ]
    outcome = run(spec_of(tmp_path, proxy.endpoint))
    rows = records_of(outcome.run)
    assert [(row["error_kind"], row["sample_id"], row["answer"]) for row in rows] == expected(shards)
    assert [row["row_id"] for row in rows] == list(range(len(shards) * ROWS))
    assert (outcome.exit_code, {row["sweep"] for row in rows}) == (0, {1})
    assert [fault.times for fault in proxy.faults] == [0] * len(proxy.faults)
    assert [proxy.count(in_shard(number)) for number in range(9)] == [1, 4, 1, 2, 4, 2, 2, 2, 3]


def test_faults_that_stay_cost_their_rows_and_a_resume_after_healing_completes(
    tmp_path: Path, proxy: FaultProxy
) -> None:
    hits = {
        "sound": None,
        "gone": "read.missing",
        "denied": "read.failed",
        "storm for ever": "read.failed",
        "cut for ever": "read.failed",
        "stalled for ever": "read.failed",
        "flipped for good": "read.corrupt",
        "sound, too": None,
    }
    shards = [Shard(name, nothing, all_rows(kind) if kind else {}, options=HASHED) for name, kind in hits.items()]
    write_dataset(tmp_path / "s3" / "bucket" / "data", shards)
    proxy.faults = [
        Fault(in_shard(1), "status", status=404, methods=("HEAD", "GET")),
        Fault(in_shard(2), "status", status=403, methods=("HEAD", "GET")),
        Fault(in_shard(3), "status", status=503, methods=("HEAD", "GET")),
        Fault(in_shard(4), "cut", at=0),
        Fault(in_shard(5), "stall", at=0),
        Fault(in_shard(6), "flip", at=3000),
    ]
    spec = spec_of(tmp_path, proxy.endpoint, limits={"sweeps": 2})
    outcome = run(spec)
    rows = records_of(outcome.run)
    assert [(row["error_kind"], row["sample_id"], row["answer"]) for row in rows] == expected(shards)
    (ledger,) = outcome.reconciliation.ledgers
    assert outcome.exit_code == 3
    assert ledger.answered == 2 * ROWS
    assert ledger.errors == {"read.missing": ROWS, "read.corrupt": ROWS}
    assert ledger.unanswered == {"read.failed": 4 * ROWS}
    told = {row["row_id"] // ROWS: row["error_message"] for row in rows if row["error_kind"]}
    place = "s3://bucket/data"
    assert told[1] == f"no shard file 01/{PLAIN} below {place}"
    assert told[2].startswith(f"{place}{in_shard(2)}: access denied (HTTP 403); check the credentials")
    assert told[3] == f"{place}{in_shard(3)}: HTTP 503 (4 tries); try again later"
    assert told[4] == f"{place}{in_shard(4)}: the connection was cut (4 tries); try again later"
    assert told[5] == f"{place}{in_shard(5)}: the server went silent (4 tries); try again later"
    assert told[6].startswith(f"06/{PLAIN}: xxh64 of 06/{PLAIN} is ")

    proxy.faults, proxy.asked = [], []
    outcome = run(spec)
    healed = {"gone", "flipped for good"}
    shards = [Shard(s.name, nothing, s.hit if s.name in healed else {}) for s in shards]
    rows = records_of(outcome.run)
    assert [row["row_id"] for row in rows] == list(range(len(shards) * ROWS))
    assert [(row["error_kind"], row["sample_id"], row["answer"]) for row in rows] == expected(shards)
    (ledger,) = outcome.reconciliation.ledgers
    assert (outcome.exit_code, ledger.complete, ledger.unanswered) == (2, True, {})
    # What was answered, or had its last word, is not fetched again.
    assert [proxy.count(in_shard(number)) for number in range(8)] == [0, 0, 1, 1, 1, 1, 0, 0]


def test_a_slow_server_that_fails_a_third_of_its_requests(tmp_path: Path) -> None:
    shards = [Shard(f"shard {number}", nothing, options=HASHED) for number in range(12)]
    write_dataset(tmp_path / "s3" / "bucket" / "data", shards)
    with hadro.Server(data=str(tmp_path / "s3"), error_rate=0.3, latency_ms=20, bandwidth_mbps=20) as server:
        outcome = run(spec_of(tmp_path, server.endpoint, storage={"attempts": 10}))
    rows = records_of(outcome.run)
    assert [(row["error_kind"], row["sample_id"], row["answer"]) for row in rows] == expected(shards)
    assert outcome.exit_code == 0


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault("index.json", "status", status=404, methods=("HEAD",)), r"not there \(HTTP 404\) \(give the URL"),
        (Fault("index.json", "status", status=403, methods=("HEAD",)), r"access denied \(HTTP 403\); check the"),
        (Fault("index.json", "status", status=503), r"HTTP 503 Planted \(4 tries\)"),
        (Fault("index.json", "flip", at=0), "not JSON"),
    ],
    ids=["missing", "denied", "storm", "damaged"],
)
def test_without_a_sound_index_no_run_starts(tmp_path: Path, proxy: FaultProxy, fault: Fault, message: str) -> None:
    write_dataset(tmp_path / "s3" / "bucket" / "data", [Shard("sound", nothing)])
    proxy.faults = [fault]
    with pytest.raises(UserError, match=message) as caught:
        run(spec_of(tmp_path, proxy.endpoint))
    assert "s3://bucket/data/index.json" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
