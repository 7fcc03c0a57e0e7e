"""Measures what rows cost before there is a run: a few blocks of the data, in a process of their own."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from proctor.capacity.rowcost import BlockCost, ImageSize, SampleOrder
from proctor.rows import ErrorKind, Failure
from proctor.sources.base import BLOCK_BYTES, ReadGroup, Source
from proctor.spec import RunSpec

SAMPLE_SECONDS = 20.0
"""Time after which a sample takes no further block."""
_GRACE_SECONDS = 40.0
_MB = 1_000_000
_ENVIRONMENT = {
    # mimalloc, Arrow's default, keeps pages and so makes a table look larger than it is (measured: 89 against 67 MB).
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "OMP_NUM_THREADS": "1",
}


class Sample(msgspec.Struct, frozen=True):
    """What the sampled blocks say about the rows. Bytes and seconds.

    Attributes:
        blocks: what each sampled block cost.
        trouble: why there is no (complete) sample; None if there is one.
        exact_peaks: whether the kernel counted the peaks of memory.
    """

    blocks: tuple[BlockCost, ...] = ()
    trouble: Failure | None = None
    exact_peaks: bool = True

    @property
    def rows(self) -> int:
        """Rows that were read."""
        return sum(block.rows for block in self.blocks)

    @property
    def source_bytes(self) -> int:
        """Their bytes, as the source counts them when it plans blocks."""
        return sum(block.source_bytes for block in self.blocks)

    @property
    def mean_row(self) -> float:
        """Mean bytes of a row."""
        return self.source_bytes / max(1, self.rows)

    @property
    def largest_row(self) -> int:
        """Bytes of the largest row, as data in a block."""
        return max((block.largest_row for block in self.blocks), default=0)

    @property
    def f_heap(self) -> float:
        """The most memory that reading took, for each byte of data."""
        return max((block.read_peak / max(1, block.source_bytes) for block in self.blocks), default=0.0)

    @property
    def f_arrow(self) -> float:
        """Bytes in Arrow for each byte of data."""
        return max((block.arrow_bytes / max(1, block.source_bytes) for block in self.blocks), default=0.0)

    @property
    def f_prepared(self) -> float:
        """Bytes of prepared rows for each byte of data."""
        return max((block.prepared_bytes / max(1, block.prepare_source_bytes) for block in self.blocks), default=0.0)

    @property
    def images_per_row(self) -> float:
        """Mean number of images."""
        return sum(block.images for block in self.blocks) / max(1, sum(block.prepared_rows for block in self.blocks))

    @property
    def prompt_chars(self) -> int:
        """Characters of the longest prompt."""
        return max((block.prompt_chars for block in self.blocks), default=0)

    @property
    def image_rows(self) -> list[tuple[ImageSize, ...]]:
        """Sizes of the images of some rows."""
        return [row for block in self.blocks for row in block.image_rows]

    def block_peak(self, source_bytes: float) -> tuple[float, float]:
        """The most memory that reading, and then preparing, a block of so many bytes takes: in proportion to them."""
        return (
            max((b.read_peak / max(1, b.source_bytes) for b in self.blocks), default=0.0) * source_bytes,
            max((b.prepare_peak / max(1, b.prepare_source_bytes) for b in self.blocks), default=0.0) * source_bytes,
        )

    def per_row(self, name: str) -> float:
        """Seconds a row of ``read_seconds``, ``read_cpu``, ``prepare_cpu`` or ``write_cpu``.

        The median of the blocks: whatever else the machine does meanwhile lengthens some of them.
        """
        rows = "rows" if name.startswith("read") else "prepared_rows"
        counted = [block for block in self.blocks if getattr(block, rows)]
        return median(getattr(block, name) / getattr(block, rows) for block in counted) if counted else 0.0

    @property
    def read_mb_s(self) -> float | None:
        """Megabytes of data that one task reads in a second."""
        seconds = self.per_row("read_seconds")
        return self.mean_row / seconds / _MB if seconds else None


def take_sample(spec: RunSpec, source: Source, groups: Sequence[ReadGroup], seconds: float = SAMPLE_SECONDS) -> Sample:
    """Reads and prepares a block of the first, the middle and the last shard, and the one whose rows are largest.

    It works in a clean process, so that neither imports nor earlier work are in the figures, and leaves nothing.

    Args:
        spec: the run.
        source: its source.
        groups: what the run would read.
        seconds: time after which no further block is taken.

    Returns:
        What was found; data that cannot be read is told in `Sample.trouble`, never raised.
    """
    chosen = choose(source, groups, spec)
    if not chosen:
        return Sample(trouble=None)
    with tempfile.TemporaryDirectory(prefix="proctor-sample-") as folder:
        order = SampleOrder(spec, source, tuple(chosen), seconds, folder)
        return _in_child(order, Path(folder) / "sample.json", seconds + _GRACE_SECONDS)


def choose(source: Source, groups: Sequence[ReadGroup], spec: RunSpec) -> list[ReadGroup]:
    """Which blocks to look at, each at most `BLOCK_BYTES`: in source order, none twice."""
    if not groups:
        return []
    shards = sorted({group.shard for group in groups})
    first = {group.shard: group for group in reversed(groups)}
    largest = max(groups, key=lambda group: group.size_bytes / len(group.row_ids))
    picked = [first[shards[0]], first[shards[len(shards) // 2]], groups[-1], largest]
    cut = [next(iter(source.groups(group.row_ids, spec.stream.block_rows, BLOCK_BYTES))) for group in picked]
    return sorted({(group.shard, group.rows): group for group in cut}.values(), key=lambda g: g.row_ids.min())


def _in_child(order: SampleOrder, result: Path, seconds: float) -> Sample:
    command = [sys.executable, "-P", "-m", "proctor.capacity.probe", str(result)]
    try:
        done = subprocess.run(
            command,
            input=pickle.dumps(order),
            capture_output=True,
            env={**os.environ, **_ENVIRONMENT},
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Sample(trouble=_failure(f"the sample did not end within {seconds:g} s"))
    if result.is_file():
        return msgspec.json.decode(result.read_bytes(), type=Sample)
    return Sample(trouble=_failure(_last_words(done)))


def _last_words(done: subprocess.CompletedProcess[bytes]) -> str:
    lines: list[Any] = done.stderr.decode(errors="replace").strip().splitlines()
    how = f"by signal {-done.returncode}" if done.returncode < 0 else f"with exit code {done.returncode}"
    return f"the process that read a sample ended {how}" + (f": {lines[-1][:300]}" if lines else "")


def _failure(message: str) -> Failure:
    return Failure(ErrorKind.READ_FAILED, message)
