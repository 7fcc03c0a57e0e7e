"""How rows are counted: busy time in any order of rows, many rows as few, quantiles within their errors."""

from __future__ import annotations

import random
import sqlite3
import statistics
from collections import Counter
from math import ceil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.trace import open_trace
from proctor.trace.work import busy as busy_module
from proctor.trace.work import census as census_module
from proctor.trace.work import census_pass as pass_module
from proctor.trace.work import census_rows as rows_module
from proctor.trace.work.busy import DEVICE, STREAM, busy_by
from proctor.trace.work.census import Census, census
from proctor.trace.work.census_rows import counted_by_name
from proctor.trace.work.intervals import union_length
from proctor.trace.work.quantiles import BUCKET_BITS, Histogram, bucket_of, bucket_sql
from proctor.trace.work.scope import By, Scope
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


SAME = ("key", "calls", "total", "mean", "least", "most", "names", "share")
WHERE = ("first", "last", "devices", "pids", "streams")


def figures(found: Census, names: tuple[str, ...]) -> list[list[object]]:
    return [[getattr(line, name) for name in names] for line in found.lines]


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("rows_at_once", [7, 1 << 14])
def test_many_rows_are_counted_as_few_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shuffled: bool, rows_at_once: int
) -> None:
    write_random(tmp_path / "t.sqlite", shuffled=shuffled, rows=2000)
    with open_trace(tmp_path / "t.sqlite") as trace:
        exact = {by: census(trace, by) for by in (By.FULL, By.SHORT, By.STREAM, By.DEVICE, By.CATEGORY)}
        window = Scope(200_000, 600_000, 1)
        part = census(trace, scope=window)
        monkeypatch.setattr(rows_module, "EXACT_ROWS", 0)
        monkeypatch.setattr(pass_module, "ROWS_AT_ONCE", rows_at_once)
        for by, few in exact.items():
            assert census(trace, by, whole=True) == few
        assert census(trace, scope=window) == part
        light = census(trace, whole=False)
        assert figures(light, (*SAME, "median", "p95", "error")) == figures(
            exact[By.FULL], (*SAME, "median", "p95", "error")
        )
        assert (light.whole, light.devices, light.streams) == (False, None, None)
        assert figures(light, WHERE) == [[None] * len(WHERE)] * 5
        assert (light.calls, light.total, light.without_times) == (2000, exact[By.FULL].total, 0)
        assert census(trace, scope=window, whole=False).total == part.total
        assert census(trace, By.CATEGORY, whole=False).lines[0].calls == exact[By.CATEGORY].lines[0].calls
        monkeypatch.setattr(census_module, "WHOLE_ROWS", 1999)
        assert census(trace) == light
        assert census(trace, By.STREAM) == exact[By.STREAM]


def test_too_many_durations_share_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(3)
    export = Export(tmp_path / "t.sqlite")
    for start in range(0, 3_000_000, 1000):
        export.kernel(f"k{start % 3}", start, start + chance.randrange(100_000, 110_000))
    with open_trace(export.close()) as trace:
        few = census(trace)
        for name, value in (("ROWS_AT_ONCE", 50), ("MOST_TEXTS", 90), ("MOST_DURATIONS", 200), ("_FEW_DURATIONS", 10)):
            monkeypatch.setattr(pass_module, name, value)
        many = census(trace, whole=False)
    assert figures(many, SAME) == figures(few, SAME)
    assert any(line.error for line in many.lines)
    for line, other in zip(many.lines, few.lines, strict=True):
        assert abs(line.median - other.median) <= line.error <= other.p95 / 256 + 1
        assert abs(line.p95 - other.p95) <= line.error


def test_a_large_trace_by_range_has_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export = Export(tmp_path / "r.sqlite").annotation("a", 0, 99).launch("k", 5, 100, 4100).launch("k", 9, 1, 3)
    monkeypatch.setattr(rows_module, "EXACT_ROWS", 0)
    with open_trace(export.close()) as trace:
        assert [(line.key, line.total, line.calls) for line in census(trace, By.NVTX).lines] == [("a", 4002, 2)]


def test_names_and_row_ids_out_of_the_ordinary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export = Export(tmp_path / "t.sqlite")
    for number in range(40):
        export.kernel(f"k{number % 3}", number * 100, number * 100 + 10 + number)
    export.connection.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET rowid = rowid * 1000003 WHERE rowid > 20")
    with open_trace(export.close()) as trace:
        few = census(trace)
        monkeypatch.setattr(rows_module, "EXACT_ROWS", 0)
        monkeypatch.setattr(pass_module, "ROWS_AT_ONCE", 8)
        assert figures(census(trace, whole=False), SAME) == figures(few, SAME)
        assert census(trace, whole=True) == few
    huge = sqlite3.connect(tmp_path / "t.sqlite")
    huge.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = 1 << 62 WHERE demangledName = 1")
    huge.execute("UPDATE StringIds SET id = 1 << 62 WHERE id = 1")
    huge.commit()
    huge.close()
    with open_trace(tmp_path / "t.sqlite") as trace:
        for whole in (False, True):
            found = census(trace, whole=whole)
            assert figures(found, SAME[:6]) == figures(few, SAME[:6])
            assert found.streams == few.streams


def test_kernels_without_a_name_or_with_an_end_too_early(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").kernel("k", 0, 10).kernel("k", 20, 25).kernel("k", 30, 31).kernel("l", 0, 9)
    with open_trace(export.close()) as trace:
        trace.run("DROP VIEW temp.kernels")  # as if opening had not sorted such rows out
        name, other = (trace.one("SELECT id FROM strings WHERE text = ?", (text,)) for text in "kl")
        trace.run(
            f"""CREATE TEMP VIEW kernels AS SELECT rowid AS id, iif(start = 20, NULL, demangledName) AS name, start,
            CASE WHEN start = 30 OR demangledName = {other} THEN start - 5 ELSE "end" END AS "end"
            FROM main.CUPTI_ACTIVITY_KIND_KERNEL"""
        )
        found = counted_by_name(trace)
        assert [(row.name, row.durations.count, row.durations.total) for row in found.rows] == [
            (name, 1, 10),
            (-1, 1, 5),
        ]
        assert found.launches == 4
        trace.run("DROP VIEW temp.kernels")
        trace.run(
            f"""CREATE TEMP VIEW kernels AS SELECT rowid AS id, demangledName AS name, start,
            CASE WHEN start = 30 OR demangledName = {other} THEN start - 5 ELSE "end" END AS "end"
            FROM main.CUPTI_ACTIVITY_KIND_KERNEL"""
        )
        found = counted_by_name(trace)
        assert [(row.name, row.durations.count, row.durations.total) for row in found.rows] == [(name, 2, 15)]


DURATIONS = st.lists(st.integers(0, 2**40), min_size=1, max_size=60)


@given(DURATIONS, st.sampled_from([0.5, 0.9, 0.95, 0.99, 1.0]))
def test_a_quantile_is_within_its_error(durations: list[int], share: float) -> None:
    histogram = Histogram()
    for duration in durations:
        histogram.add_bucket(bucket_of(duration), 1, duration, duration, duration)
    ordered = sorted(durations)
    found = histogram.quantile(share)
    right = ordered[ceil(share * len(ordered) - 1e-9) - 1]
    assert abs(found.value - right) <= found.error <= right / 256 + 1
    assert abs(histogram.median().value - statistics.median(ordered)) <= histogram.median().error
    assert (histogram.least, histogram.most, histogram.total) == (ordered[0], ordered[-1], sum(ordered))


@given(DURATIONS, DURATIONS, st.sampled_from([0.5, 0.9, 0.95, 0.99, 1.0]), st.booleans())
def test_durations_one_by_one_are_exact(one: list[int], other: list[int], share: float, coarse: bool) -> None:
    histogram = Histogram(dict(Counter(one)))
    for duration in other[: len(other) // 2]:
        histogram.add(duration, 1)
    histogram.merge(Histogram(dict(Counter(other[len(other) // 2 :]))))
    ordered = sorted(one + other)
    right = ordered[ceil(share * len(ordered) - 1e-9) - 1]
    assert (histogram.count, histogram.total) == (len(ordered), sum(ordered))
    assert histogram.distinct == len(set(ordered))
    assert histogram.quantile(share) == (right, 0)
    assert histogram.median() == ((ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2, 0)
    if coarse:
        histogram.coarsen()
        histogram.add(ordered[0], 1)
        ordered.insert(0, ordered[0])
        found, right = histogram.quantile(share), ordered[ceil(share * len(ordered) - 1e-9) - 1]
        assert abs(found.value - right) <= found.error <= right / 256 + 1
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
