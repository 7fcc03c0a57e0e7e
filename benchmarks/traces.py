"""The census of a large trace: processor time against the usual query and a loop in Python; memory; a second look.

The trace has 5,000,000 kernel rows in the layout of Nsight Systems 2026.2 (40 columns, about 500 MB): 100 kernels with
names as long as real ones and durations in ticks of 32 ns as on Hopper, 2 processes with a device and 2 streams each,
in order of time. Every round runs all contestants one after another on the same file (page cache warm), so that a busy
machine slows them alike; a ratio is taken within a round. Seconds are those of the processor, not of the clock.

*The usual query* joins the names and groups by their text, as posts about exports do. *The loop* fetches each row's
name and duration and counts in a dict. *The same figures* are those of ``proctor trace census --quick``: calls, total,
mean, least, most. *The census* is what ``proctor trace census`` takes of a trace of this size: the same figures with
exact medians and 95th percentiles. *The whole census* (``--whole``) also says when and on which streams each kernel
ran, and how busy each stream and device was, as a union of intervals.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.mds import ratios, result, status
from proctor.trace import Trace, open_trace
from proctor.trace.work.census import census, kept_census
from proctor.trace.work.census_rows import totals

TITLE = "the census of a trace of 5,000,000 kernels"

ROWS = 5_000_000
NAMES = 100
_BASE = 4_000
_COLUMNS = (
    "start", '"end"', "deviceId", "contextId", "greenContextId", "streamId", "correlationId", "globalPid",
    "demangledName", "shortName", "mangledName", "launchType", "cacheConfig", "registersPerThread", "gridX", "gridY",
    "gridZ", "blockX", "blockY", "blockZ", "staticSharedMemory", "dynamicSharedMemory", "localMemoryPerThread",
    "localMemoryTotal", "gridId", "sharedMemoryExecuted", "graphNodeId", "sharedMemoryLimitConfig",
    "qmdBulkReleaseDone", "qmdPreexitDone", "qmdLastCtaDone", "graphId", "clusterX", "clusterY", "clusterZ",
    "clusterSchedulingPolicy", "maxPotentialClusterSize", "maxActiveClusters", "sharedMemoryRequestedPercentage",
    "tensorSizeMinusOneElements",
)  # fmt: skip
_USUAL = """SELECT s.value, count(*), sum(k."end" - k.start), avg(k."end" - k.start), min(k."end" - k.start),
    max(k."end" - k.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName
    GROUP BY s.value ORDER BY 3 DESC"""


def run(rounds: int) -> list[dict[str, Any]]:
    """Measures everything and returns one dict a figure: name, figure, unit, ratio_to, rounds, spread."""
    with tempfile.TemporaryDirectory(prefix="traces-bench-") as place:
        path = write(Path(place) / "trace.sqlite")
        os.environ["PROCTOR_CACHE"] = str(Path(place) / "cache")
        seconds = interleaved(path, rounds)
        peaks = {name: [child(path, f"--peak-{name}")["peak"] / 1e6 for _ in range(2)] for name in ("census", "whole")}
        os.environ["PROCTOR_CACHE"] = str(Path(place) / "fresh")  # the rounds above left a survey of the file in theirs
        first = child(path, "--look")
        looks = [child(path, "--look") for _ in range(rounds)]
    usual, loop = "the usual query: join, then group by text", "a loop over all rows in Python"
    return [
        *(result(f"{name}: processor time", "s", values, digits=3) for name, values in seconds.items()),
        result("the same figures: less processor time", "x", ratios(seconds["usual"], seconds["same figures"]), usual),
        result("the same figures: less processor time", "x", ratios(seconds["loop"], seconds["same figures"]), loop),
        result("the census: less processor time", "x", ratios(seconds["usual"], seconds["census"]), usual),
        result("the census: less processor time", "x", ratios(seconds["loop"], seconds["census"]), loop),
        result("the whole census: less processor time", "x", ratios(seconds["usual"], seconds["whole census"]), usual),
        result("the census in a process of its own: peak memory", "MB", peaks["census"]),
        result("the whole census in a process of its own: peak memory", "MB", peaks["whole"]),
        result("first look, with opening: processor time", "s", [first["cpu"]], digits=3),
        result("second look, with opening: processor time", "s", [look["cpu"] for look in looks], digits=3),
        result("second look, with opening: time", "s", [look["wall"] for look in looks], digits=3),
    ]


def interleaved(path: Path, rounds: int) -> dict[str, list[float]]:
    """Processor seconds of each contestant in each round."""
    contestants: dict[str, Callable[[Trace], object]] = {
        "usual": lambda trace: usual_query(trace.path),
        "loop": lambda trace: python_loop(trace.path),
        "same figures": same_figures,
        "census": census,
        "whole census": lambda trace: census(trace, whole=True),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    with open_trace(path) as trace:
        agree(trace)
        for _ in range(rounds):
            for name, contestant in contestants.items():
                start = time.process_time()
                contestant(trace)
                seconds[name].append(time.process_time() - start)
    return seconds


def usual_query(path: Path) -> list[tuple[Any, ...]]:
    """One query, as it is usually written."""
    connection = sqlite3.connect(path)
    try:
        return connection.execute(_USUAL).fetchall()
    finally:
        connection.close()


def python_loop(path: Path) -> list[tuple[Any, ...]]:
    """Every row comes to Python."""
    connection = sqlite3.connect(path)
    found: dict[int, list[int]] = {}
    for name, duration in connection.execute('SELECT demangledName, "end" - start FROM CUPTI_ACTIVITY_KIND_KERNEL'):
        known = found.get(name)
        if known is None:
            found[name] = [1, duration, duration, duration]
            continue
        known[0] += 1
        known[1] += duration
        if duration < known[2]:
            known[2] = duration
        elif duration > known[3]:
            known[3] = duration
    texts = dict(connection.execute("SELECT id, value FROM StringIds"))
    connection.close()
    rows = [(texts[name], n, total, total / n, low, high) for name, (n, total, low, high) in found.items()]
    return sorted(rows, key=lambda row: -row[2])


def same_figures(trace: Trace) -> list[tuple[Any, ...]]:
    """What the usual query gives, from Proctor's light pass."""
    found = totals(trace)
    texts = trace.text(found)
    rows = [(texts[name], t.calls, t.total, t.mean, t.least, t.most) for name, t in found.items()]
    return sorted(rows, key=lambda row: -row[2])


def agree(trace: Trace) -> None:
    """All contestants must have the same answer before any is timed."""
    wanted = usual_query(trace.path)
    light, whole = (
        [
            (line.key, line.calls, line.total, line.mean, line.least, line.most)
            for line in census(trace, whole=all_).lines
        ]
        for all_ in (False, True)
    )
    if not wanted == python_loop(trace.path) == same_figures(trace) == light == whole:
        raise RuntimeError("the contestants count differently")


def write(path: Path, rows: int = ROWS) -> Path:
    """Makes the trace: 4,000 rows by chance, repeated with their durations shifted, all within SQLite."""
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode = OFF", "synchronous = OFF"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("BEGIN")
    names = ", ".join(_COLUMNS)
    connection.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({names.replace(',', ' INTEGER,')} INTEGER)")
    connection.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL)")
    connection.execute("CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)")
    connection.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.25.0')")
    connection.executemany("INSERT INTO StringIds VALUES (?, ?)", [(number, name(number)) for number in range(NAMES)])
    length = base_rows(connection)
    values = {
        "start": f"b.start + i * {length}",
        '"end"': f"b.start + i * {length} + b.duration + (i * 7919 + b.number * 104729) % (1 + b.duration / 512) * 32",
        "deviceId": "b.place / 2", "contextId": "1", "streamId": "7 + b.place % 2 * 13",
        "correlationId": f"i * {_BASE} + b.number", "globalPid": "281477392629760 + b.place / 2 * 16777216",
        "demangledName": "b.name", "shortName": "b.name", "gridX": "132", "blockX": "384", "registersPerThread": "168",
        "dynamicSharedMemory": "213196",
    }  # fmt: skip
    chosen = ", ".join(values.get(column, "0") for column in _COLUMNS)
    connection.execute(
        f"""WITH RECURSIVE series (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM series WHERE i < {rows // _BASE - 1})
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT {chosen} FROM series CROSS JOIN temp.base b"""
    )
    connection.execute("COMMIT")
    connection.close()
    return path


def name(number: int) -> str:
    """A demangled name of 46 to 483 characters, as those of a real capture of PyTorch are, 235 on average."""
    head = f"void at::native::elementwise_kernel_{number}<(int)128, "
    inside = "void at::native::gpu_kernel_impl_nocast<at::native::BinaryFunctor<float, float, float>>"
    return head + (inside * 6)[: 46 + number * 389 % 437 - len(head)] + ">(int, T3)"


def base_rows(connection: sqlite3.Connection) -> int:
    """Fills ``temp.base`` with the rows that are repeated; returns the ns until the next repetition."""
    chance = random.Random(7)
    usual = [2.0 ** chance.uniform(10.5, 20) for _ in range(NAMES)]
    weights = [1 / (1 + number) for number in range(NAMES)]
    free = [0] * 4
    rows = []
    for name in chance.choices(range(NAMES), weights, k=_BASE):
        place = min(range(4), key=lambda stream: free[stream])
        duration = max(1312, int(usual[name] * chance.lognormvariate(0, 0.15)) // 32 * 32)
        start = free[place] + chance.randrange(500, 4000)
        free[place] = start + duration
        rows.append((start, duration, place, name))
    rows.sort()
    connection.execute("CREATE TEMP TABLE base (number INTEGER PRIMARY KEY, start, duration, place, name)")
    connection.executemany("INSERT INTO base VALUES (?, ?, ?, ?, ?)", [(n, *row) for n, row in enumerate(rows)])
    return rows[-1][0] + 1000


def child(path: Path, what: str) -> dict[str, float]:
    """What a fresh process says of itself."""
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.traces", what, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def peak(path: Path, *, whole: bool) -> dict[str, float]:
    """Peak resident memory of this process, after a census."""
    with open_trace(path) as trace:
        census(trace, whole=whole)
    return {"peak": status()["VmHWM"]}


def look(path: Path) -> dict[str, float]:
    """Time from the file's name to its census, as a command takes it, without the start of Python."""
    cpu, wall = time.process_time(), time.perf_counter()
    with open_trace(path) as trace:
        kept_census(trace)
    return {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}


if __name__ == "__main__":
    asked: dict[str, Callable[[Path], dict[str, float]]]
    asked = {"--peak-census": partial(peak, whole=False), "--peak-whole": partial(peak, whole=True), "--look": look}
    print(json.dumps(asked[sys.argv[1]](Path(sys.argv[2]))))
