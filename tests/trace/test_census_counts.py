"""How rows are counted: busy time in any order of rows, many rows as few, quantiles within their errors."""

from __future__ import annotations

import random
import sqlite3
import statistics
from math import ceil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.trace import open_trace
from proctor.trace.work import busy as busy_module
from proctor.trace.work import census_rows as rows_module
from proctor.trace.work.busy import DEVICE, STREAM, busy_by
from proctor.trace.work.census import census
from proctor.trace.work.intervals import union_length
from proctor.trace.work.quantiles import BUCKET_BITS, Histogram, bucket_of, bucket_sql
from proctor.trace.work.scope import By
from tests.trace.exports import Export, process_id


def write_random(path: Path, *, shuffled: bool, rows: int = 400) -> list[tuple[str, int, int, int, int, int]]:
    """Kernels of 5 names on 2 devices, 3 streams and 2 processes, many of which overlap."""
    chance = random.Random(11)
    made = []
    for _ in range(rows):
        start = chance.randrange(1_000_000)
        duration = int(10 ** chance.uniform(0, 6))
        name, place = f"k{chance.randrange(5)}", (chance.randrange(2), chance.randrange(3), 100 + chance.randrange(2))
        made.append((name, start, start + duration, *place))
    if not shuffled:
        made.sort(key=lambda row: row[1])
    export = Export(path)
    for name, start, end, device, stream, pid in made:
        export.kernel(name, start, end, device=device, stream=stream, pid=pid)
    export.close()
    return made


@pytest.mark.parametrize("shuffled", [False, True])
def test_busy_time_whatever_the_order_of_rows(tmp_path: Path, shuffled: bool) -> None:
    made = write_random(tmp_path / "t.sqlite", shuffled=shuffled)
    streams: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    devices: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for _, start, end, device, stream, pid in made:
        streams.setdefault((process_id(pid), device, 1, stream), []).append((start, end))
        devices.setdefault((process_id(pid), device), []).append((start, end))
    with open_trace(tmp_path / "t.sqlite") as trace:
        assert busy_by(trace, "kernels", STREAM) == {key: union_length(own) for key, own in streams.items()}
        assert busy_by(trace, "kernels", DEVICE) == {key: union_length(own) for key, own in devices.items()}


def test_keys_that_fall_together_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_random(tmp_path / "t.sqlite", shuffled=False)
    with open_trace(tmp_path / "t.sqlite") as trace:
        expected = busy_by(trace, "kernels", STREAM)
        monkeypatch.setattr(busy_module, "_FACTORS", ((1, 0, 0, 0), *busy_module._FACTORS))
        assert busy_by(trace, "kernels", STREAM) == expected
        monkeypatch.setattr(busy_module, "_FACTORS", ((1, 0, 0, 0),))
        assert busy_by(trace, "kernels", STREAM) == expected


def test_many_rows_are_counted_as_few_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_random(tmp_path / "t.sqlite", shuffled=True, rows=2000)
    with open_trace(tmp_path / "t.sqlite") as trace:
        exact = {by: census(trace, by) for by in (By.FULL, By.SHORT, By.STREAM, By.DEVICE, By.CATEGORY)}
        monkeypatch.setattr(rows_module, "EXACT_ROWS", 0)
        for by, few in exact.items():
            many = census(trace, by)
            assert (many.calls, many.total, many.devices, many.streams) == (
                few.calls,
                few.total,
                few.devices,
                few.streams,
            )
            for line, other in zip(many.lines, few.lines, strict=True):
                same = ("key", "calls", "total", "least", "most", "first", "last", "names", "streams")
                assert [getattr(line, name) for name in same] == [getattr(other, name) for name in same]
                assert abs(line.median - other.median) <= line.error <= max(1, line.most / 256 + 1)
                assert abs(line.p95 - other.p95) <= line.error
                assert other.error == 0
        with_ranges = (
            Export(tmp_path / "r.sqlite").annotation("a", 0, 99).launch("k", 5, 100, 4100).launch("k", 9, 1, 3)
        )
    with open_trace(with_ranges.close()) as trace:
        assert [(line.key, line.total, line.calls) for line in census(trace, By.NVTX).lines] == [("a", 4002, 2)]


DURATIONS = st.lists(st.integers(0, 2**40), min_size=1, max_size=60)


@given(DURATIONS, st.sampled_from([0.5, 0.9, 0.95, 0.99, 1.0]))
def test_a_quantile_is_within_its_error(durations: list[int], share: float) -> None:
    histogram = Histogram()
    for duration in durations:
        histogram.add(bucket_of(duration), 1, duration, duration, duration)
    ordered = sorted(durations)
    found = histogram.quantile(share)
    right = ordered[ceil(share * len(ordered) - 1e-9) - 1]
    assert abs(found.value - right) <= found.error <= right / 256 + 1
    assert abs(histogram.median().value - statistics.median(ordered)) <= histogram.median().error
    assert (histogram.least, histogram.most, histogram.total) == (ordered[0], ordered[-1], sum(ordered))


@given(st.integers(0, 2**61), st.integers(0, 2**61))
def test_buckets_keep_the_order_of_durations(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert 0 <= bucket_of(low) <= bucket_of(high) < 1 << BUCKET_BITS
    if bucket_of(low) == bucket_of(high):
        assert high - low <= low / 256


def test_sql_and_python_agree_on_buckets() -> None:
    edges = [0, 1, 255, 1023, 1024, 4095, 4096, 16383, 16384, *(2**n + d for n in range(10, 61) for d in (-1, 0, 1))]
    connection = sqlite3.connect(":memory:")
    for duration in edges:
        sql = f"SELECT {bucket_sql('d')} FROM (SELECT ? AS d)"
        assert connection.execute(sql, (duration,)).fetchone() == (bucket_of(duration),)
    connection.close()
