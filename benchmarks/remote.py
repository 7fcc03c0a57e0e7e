"""Reading MDS from object storage: own reader against what the loopback server gives a client that only fetches.

A real S3 server (`hadro`, read-only, in a process of its own) serves shards of camera frames from the page cache of
this machine. Every round runs all contestants one after another in this process; a ratio is taken within a round, and
the figure is the median over rounds with the extremes beside it.

The *ceiling* fetches every shard by GETs of 16 MB with the same client (obstore), one after another, and throws the
bytes away: no retries, no checks, no decoding. *Own reader* gives the rows as blocks, by ranges (its requests overlap,
so it may be above the ceiling). The contestants with digests fetch whole shards into the disk cache, check them and
read them from there; a cache that is warm has them from a round before.
"""

from __future__ import annotations

import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import obstore

from benchmarks.mds import MB, interleaved, rates, ratios, result, write_images
from proctor.sources.mds import MDSSource, shard
from proctor.storage.cache import DiskCache
from proctor.storage.connect import StorageOptions, object_store

TITLE = "MDS from object storage, against a loop of plain ranged GETs"

ROWS = 80
PIECE = 16 << 20
GROUP_ROWS = 10
SINGLE_ROWS = 20


def run(rounds: int) -> list[dict[str, Any]]:
    """Measures everything and returns one dict a figure: name, figure, unit, ratio_to, rounds, spread."""
    with tempfile.TemporaryDirectory(prefix="remote-bench-") as place, server(Path(place)) as storage:
        write_images(Path(place) / "bucket" / "plain", ROWS)
        write_images(Path(place) / "bucket" / "hashed", ROWS, hashes=["xxh64"])
        reader = Reader(storage, Path(place))
        return [*whole(reader, Path(place) / "bucket" / "plain", rounds), *single(reader, rounds)]


def whole(reader: Reader, path: Path, rounds: int) -> list[dict[str, Any]]:
    """Every row of a dataset."""
    size = sum(file.stat().st_size for file in path.glob("*.mds")) / MB
    contestants = {
        "ceiling": lambda _: reader.fetch_plainly(),
        "own reader": lambda _: reader.read("plain", rows=1 << 20),
        f"own reader, {GROUP_ROWS} rows a group": lambda _: reader.read("plain", rows=GROUP_ROWS),
        "digests checked, cache empty": lambda _: reader.read("hashed", rows=1 << 20, empty=True),
        "digests checked, cache warm": lambda _: reader.read("hashed", rows=1 << 20),
    }
    seconds = interleaved(rounds, contestants, path)
    ceiling = seconds.pop("ceiling")
    return [
        result("ceiling: plain ranged GETs", "MB/s", rates(size, ceiling)),
        *(result(name, "MB/s", rates(size, taken)) for name, taken in seconds.items()),
        *(result(f"{name}, speed", "x", ratios(ceiling, taken), "the ceiling") for name, taken in seconds.items()),
    ]


def single(reader: Reader, rounds: int) -> list[dict[str, Any]]:
    """One row of many, as a viewer asks for it: with the row table known, and anew."""
    row, table, plain = [], [], []
    for number in range(rounds + 1):
        shard._ranged.cache_clear()
        found = [reader.time_row(7 * place % ROWS) for place in range(SINGLE_ROWS)]
        gets = [reader.time_plain_row() for _ in range(SINGLE_ROWS)]
        if number:
            table.append(1e3 * found[0])
            row.append(1e3 * statistics.median(found[5:]))
            plain.append(1e3 * statistics.median(gets))
    return [
        result("one row, ms", "ms", row, digits=2),
        result("one row, with its shard's row table, ms", "ms", table, digits=2),
        result("one row: time", "x", ratios(row, plain), "one plain GET of as many bytes"),
    ]


class Reader:
    """What the contestants do."""

    def __init__(self, storage: StorageOptions, place: Path) -> None:
        self._storage, self._cache = storage, DiskCache(10 << 30, place / "cache")
        self._store = object_store("s3://bucket", storage).store
        self._source: MDSSource | None = None

    def fetch_plainly(self) -> int:
        """Every byte of the shards."""
        fetched = 0
        for listed in obstore.list(self._store, "plain").collect():
            if listed["path"].endswith(".mds"):
                for start in range(0, listed["size"], PIECE):
                    end = min(start + PIECE, listed["size"])
                    fetched += len(obstore.get_range(self._store, listed["path"], start=start, end=end))
        return fetched

    def read(self, name: str, rows: int, *, empty: bool = False) -> int:
        """Every row of a dataset, in groups of at most `rows`; no shard is open from before."""
        if empty:
            shutil.rmtree(self._cache.home, ignore_errors=True)
        shard._whole.cache_clear()
        shard._ranged.cache_clear()
        source = MDSSource(f"s3://bucket/{name}", storage=self._storage, cache=self._cache)
        groups = source.groups(source.expected(), max_rows=rows, max_bytes=1 << 40)
        read = sum(block.num_rows for group in groups for block in source.read(group))
        assert read == ROWS
        return read

    def time_row(self, row: int) -> float:
        """Seconds for one row."""
        self._source = self._source or MDSSource("s3://bucket/plain", storage=self._storage)
        start = time.perf_counter()
        assert self._source.fetch([row])["row_id"].to_pylist() == [row]
        return time.perf_counter() - start

    def time_plain_row(self) -> float:
        """Seconds for as many bytes as a row has."""
        start = time.perf_counter()
        obstore.get_range(self._store, "plain/shard.00000.mds", start=1 << 20, length=1_600_000)
        return time.perf_counter() - start


@contextmanager
def server(place: Path) -> Iterator[StorageOptions]:
    """An S3 server for the buckets below `place`, in a process of its own."""
    (place / "bucket").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "hadro", "--log-level", "error", "--port", str(port), str(place)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        yield StorageOptions(endpoint=f"http://127.0.0.1:{port}", anonymous=True)
    finally:
        process.terminate()
        process.wait(10)


def wait_for(port: int) -> None:
    for _ in range(600):
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError("the server does not start")


if __name__ == "__main__":
    for figure in run(int(sys.argv[1]) if len(sys.argv) > 1 else 5):
        print(json.dumps(figure))
