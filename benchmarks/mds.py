"""MDS reader: speed against a memory copy and against reading row by row; rows per second; memory.

    python -m benchmarks.mds [rounds]

Every round runs all contestants one after another on the same files (page cache warm), so that a busy machine slows
them alike; a ratio is taken within a round, and the figure is the median over rounds with the extremes beside it.

Two copies stand for what moving the bytes costs at least: *memcpy* copies each mapped shard whole, as a reader that
returns whole shards would, and pays for fresh memory; *floor* copies 16 MB at a time into memory that is used again,
which stays in the processor's cache and which nothing that hands out blocks can reach.

The *row by row* contestant is a re-implementation of how the public library reads (`MDSReader.get_item` of
mosaicml-streaming 0.13.0: open the file, read two offsets, read the row, cut it into a dict, once for each row),
followed by the step that turns dicts into an Arrow table. It is given `bytes` columns, which is the fastest that way
can be: a `jpeg` column comes back as an image object and would have to be encoded again.
``scripts/mds_golden.py --time DIR`` times the library itself, in an environment of its own, on a dataset that
``python -m benchmarks.mds --write DIR`` made.
"""

from __future__ import annotations

import json
import mmap
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from proctor.sources.mds import MDSSource, MDSWriter

TITLE = "the MDS reader against a memory copy and against reading row by row"

FRAMES = 5
IMAGE_ROWS = 160
FRAME_BYTES = 320_000
TINY_ROWS = 400_000
TINY_ROWS_ROW_BY_ROW = 20_000  # a twentieth: that way is slow enough
IMAGE_COLUMNS = {**{f"frame_{n}": "bytes" for n in range(FRAMES)}, "id": "int", "system": "str", "target": "str"}
TINY_COLUMNS = {"id": "int", "text": "str", "answer": "str"}
MB = 1e6
STEP = 16 << 20


def run(rounds: int) -> list[dict[str, Any]]:
    """Measures everything and returns one dict a figure: name, figure, unit, ratio_to, rounds, spread."""
    with tempfile.TemporaryDirectory(prefix="mds-bench-") as place:
        images, tiny = write_images(Path(place) / "images"), write_tiny(Path(place) / "tiny")
        large = write_images(Path(place) / "large", size_limit=None)
        return [
            *image_rows(images, rounds),
            *tiny_rows(tiny, rounds),
            *memory(images, "64 MB", rounds),
            *memory(large, "256 MB", rounds),
        ]


def image_rows(path: Path, rounds: int) -> list[dict[str, Any]]:
    """Rows of five camera frames: own reader, one memory copy of the same files, row by row."""
    size = sum(file.stat().st_size for file in path.glob("*.mds")) / MB
    contestants: dict[str, Callable[[Path], object]] = {
        "own": read_own,
        "memcpy": copy_whole,
        "floor": copy_in_steps,
        "row by row": read_row_by_row,
    }
    seconds = interleaved(rounds, contestants, path)
    copy = "one memcpy of each mapped shard into fresh memory"
    floor = "memcpy in steps of 16 MB into reused memory"
    slow = "the public library's way, row by row"
    return [
        result("image rows: own reader", "MB/s", rates(size, seconds["own"])),
        result("image rows: memcpy", "MB/s", rates(size, seconds["memcpy"])),
        result("image rows: floor", "MB/s", rates(size, seconds["floor"])),
        result("image rows: row by row", "MB/s", rates(size, seconds["row by row"])),
        result("image rows: own reader, speed", "x", ratios(seconds["memcpy"], seconds["own"]), copy),
        result("image rows: own reader, speed", "x", ratios(seconds["floor"], seconds["own"]), floor),
        result("image rows: own reader, speed", "x", ratios(seconds["row by row"], seconds["own"]), slow),
    ]


def tiny_rows(path: Path, rounds: int) -> list[dict[str, Any]]:
    """Many small rows, where what counts is the cost of a row and not of a byte."""
    contestants: dict[str, Callable[[Path], object]] = {
        "own": read_own,
        "row by row": lambda place: read_row_by_row(place, TINY_ROWS_ROW_BY_ROW),
    }
    seconds = interleaved(rounds, contestants, path)
    own, slow = rates(TINY_ROWS, seconds["own"]), rates(TINY_ROWS_ROW_BY_ROW, seconds["row by row"])
    return [
        result("tiny rows: own reader", "rows/s", own),
        result("tiny rows: own reader, a second of one core", "rows", rates(TINY_ROWS, core_seconds(path, rounds))),
        result("tiny rows: row by row", "rows/s", slow),
        result("tiny rows: own reader, speed", "x", ratios(own, slow), "the public library's way, row by row"),
    ]


def memory(path: Path, size: str, rounds: int) -> list[dict[str, Any]]:
    """Peak memory of a fresh process that reads one shard in blocks, over what it has before it begins."""
    shard = max(file.stat().st_size for file in path.glob("*.mds"))
    peaks = [child_peaks(path) for _ in range(rounds)]
    name, whole, block = f"reader of a shard of {size}, peak", "bytes of the shard", "bytes of its largest block"
    blocks = [peak["block"] for peak in peaks]
    return [
        result(f"{name} in Arrow's pool", "x", ratios([peak["arrow"] for peak in peaks], blocks), block),
        result(f"{name} of anonymous memory", "x", ratios([peak["anonymous"] for peak in peaks], blocks), block),
        result(f"{name} of anonymous memory", "x", [peak["anonymous"] / shard for peak in peaks], whole),
        result(f"{name} with the mapped file", "x", [peak["resident"] / shard for peak in peaks], whole),
    ]


def read_own(path: Path) -> int:
    """Reads every row with Proctor's reader, block by block."""
    source = MDSSource(path)
    groups = source.groups(source.expected(), max_rows=1 << 20, max_bytes=1 << 40)
    return sum(block.num_rows for group in groups for block in source.read(group))


def copy_whole(path: Path) -> int:
    """Copies every mapped shard at once."""
    copied = 0
    for file in sorted(path.glob("*.mds")):
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            copied += len(mapped[:])
    return copied


def copy_in_steps(path: Path) -> int:
    """Copies every mapped shard in steps of 16 MB, always to the same place."""
    copied, place = 0, np.empty(STEP, np.uint8)
    for file in sorted(path.glob("*.mds")):
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            for start in range(0, len(mapped), STEP):
                with memoryview(mapped)[start : start + STEP] as step:
                    place[: len(step)] = step
                    copied += len(step)
    return copied


def read_row_by_row(path: Path, limit: int | None = None) -> int:
    """The public library's way, re-implemented (see the module's docstring): dict by dict, then an Arrow table."""
    read = 0
    for shard in json.loads((path / "index.json").read_text())["shards"]:
        file = path / shard["raw_data"]["basename"]
        count = shard["samples"] if limit is None else min(shard["samples"], limit - read)
        rows = [get_item(file, shard, row) for row in range(count)]
        read += pa.Table.from_pylist(rows).num_rows
    return read


def get_item(file: Path, shard: dict[str, Any], row: int) -> dict[str, Any]:
    """One row as a dict: two offsets, the row's bytes, the sizes of its variable cells, then each cell decoded."""
    with file.open("rb", buffering=0) as opened:
        opened.seek(4 * (1 + row))
        begin, end = np.frombuffer(opened.read(8), np.uint32)
        opened.seek(int(begin))
        data = opened.read(int(end - begin))
    sizes, at = [], 0
    for size in shard["column_sizes"]:
        if size:
            sizes.append(size)
        else:
            sizes.append(int(np.frombuffer(data[at : at + 4], np.uint32)[0]))
            at += 4
    item: dict[str, Any] = {}
    for name, encoding, size in zip(shard["column_names"], shard["column_encodings"], sizes, strict=True):
        item[name] = DECODE[encoding](data[at : at + size])
        at += size
    return item


DECODE: dict[str, Callable[[bytes], Any]] = {
    "bytes": lambda data: data,
    "str": lambda data: data.decode(),
    "int": lambda data: int(np.frombuffer(data, np.int64)[0]),
}


def write_images(path: Path, rows: int = IMAGE_ROWS, **options: Any) -> Path:
    """Rows of five frames (random bytes: nothing here decodes them), 1.6 MB each, in shards of 64 MB."""
    chance = random.Random(1)
    with MDSWriter(path, IMAGE_COLUMNS, **options) as writer:
        for row in range(rows):
            frames = {
                f"frame_{n}": chance.randbytes(chance.randint(FRAME_BYTES // 2, FRAME_BYTES * 3 // 2))
                for n in range(FRAMES)
            }
            writer.write({**frames, "id": row, "system": "You watch the road. " * 10, "target": f"target {row}"})
    return path


def write_tiny(path: Path) -> Path:
    """400,000 rows of about 60 bytes."""
    with MDSWriter(path, TINY_COLUMNS) as writer:
        for row in range(TINY_ROWS):
            writer.write({"id": row, "text": f"what is ahead in scene {row}?", "answer": "dry" if row % 3 else "snow"})
    return path


def interleaved(rounds: int, contestants: dict[str, Callable[[Path], object]], path: Path) -> dict[str, list[float]]:
    """Seconds of each contestant in each round, after one round that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, contestant in contestants.items():
            start = time.perf_counter()
            contestant(path)
            if number:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def core_seconds(path: Path, rounds: int) -> list[float]:
    """Seconds of processor time that the own reader takes, whatever else the machine is doing."""
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        read_own(path)
        seconds.append(time.process_time() - start)
    return seconds


def child_peaks(path: Path) -> dict[str, int]:
    """Bytes at their peak in a fresh process that reads the first shard."""
    environment = {"PYTHONPATH": ":".join(sys.path), "ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.mds", "--peaks", str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    peaks: dict[str, int] = json.loads(done.stdout)
    return peaks


def measure_peaks(path: Path) -> dict[str, int]:
    """Reads the first shard and looks at this process's memory whenever a block is there, and at the kernel's peak."""
    source = MDSSource(path)
    group = source.groups(source.expected(), max_rows=1 << 20, max_bytes=1 << 40)[0]
    pa.array([b""], pa.binary_view()).cast(pa.large_binary())  # loads Arrow's kernels, 32 MB that every process pays
    Path("/proc/self/clear_refs").write_text("5")  # starts the kernel's peak (VmHWM) anew
    before = status()
    anonymous = largest = 0
    for block in source.read(group):
        anonymous = max(anonymous, status()["RssAnon"])
        largest = max(largest, block.nbytes)
        del block
    after = status()
    return {
        "anonymous": anonymous - before["RssAnon"],
        "resident": after["VmHWM"] - before["VmRSS"],
        "block": largest,
        "arrow": pa.default_memory_pool().max_memory(),
    }


def status() -> dict[str, int]:
    """Memory of this process in bytes, by the kernel's names."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if words[-1] == "kB"}


def rates(amount: float, seconds: list[float]) -> list[float]:
    return [amount / second for second in seconds]


def ratios(above: list[float], below: list[float]) -> list[float]:
    return [one / other for one, other in zip(above, below, strict=True)]


def result(
    name: str, unit: str, values: list[float], ratio_to: str | None = None, digits: int | None = None
) -> dict[str, Any]:
    """One figure: the median of the rounds, and the lowest and highest of them as its spread."""
    digits = (3 if unit == "x" else 0) if digits is None else digits
    low, middle, high = (round(value, digits) for value in (min(values), statistics.median(values), max(values)))
    facts = {"rounds": len(values), "spread": [low, high]}
    return {"name": name, "figure": middle, "unit": unit, "ratio_to": ratio_to, **facts}


def main(arguments: list[str]) -> Iterator[str]:
    """Lines to print for the command line."""
    if arguments[:1] == ["--peaks"]:
        yield json.dumps(measure_peaks(Path(arguments[1])))
    elif arguments[:1] == ["--write"]:
        yield str(write_images(Path(arguments[1]) / "images"))
        yield str(write_tiny(Path(arguments[1]) / "tiny"))
    else:
        for line in run(int(arguments[0]) if arguments else 7):
            yield json.dumps(line)


if __name__ == "__main__":
    for text in main(sys.argv[1:]):
        print(text)
