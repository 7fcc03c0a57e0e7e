"""Whether memory and open files stay flat: the rule, and how it is applied to the samples.

A process counts once it has been there for `LONG_SECONDS` beyond a warm-up of `WARM_SECONDS`, in which libraries are
loaded and allocators fill (a driver that nothing disturbed grew by 2.4 MB in its first minutes and by 0.5 MB in later
ones, none of it Python objects); a role counts when the run did `LEAST_ROWS` rows in these lives. Over all lives of a
role a line is fitted to memory against rows done, with a level of its own for each life (least squares): its slope is
the role's growth. The role is flat when one process that did all of 100,000 rows would grow by at most `MEMORY_SHARE`
of what the role takes at the median, and by at most `FILES` open files. Samples after the last row are left out: a
driver that closes a run adds up its metrics and writes the report, which takes memory and no rows. Memory is a
process's own: what is resident, less what it shares with others, since the object store is mapped into every worker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from benchmarks.soak.samples import Sample

WARM_SECONDS = 90.0
LONG_SECONDS = 45.0
LEAST_SAMPLES = 8
LEAST_ROWS = 5_000
PER_ROWS = 10_000
WHOLE_ROWS = 100_000
MEMORY_SHARE = 0.25
FILES = 10.0
JUDGED = ("driver", "actor", "hub", "engine", "warden", "worker")


@dataclass(frozen=True, slots=True)
class Growth:
    """What became of one role.

    Attributes:
        processes: how many lived long enough to count.
        seconds: how long the longest of them was looked at.
        rows: rows that the run did meanwhile, all of them together.
        own_mb, rss_mb: medians: memory of its own, and all that is resident.
        most_mb: the largest resident memory seen.
        files: open files, median.
        own_growth, rss_growth, files_growth: MB, MB and open files for each 10,000 rows.
        flat: what the rule says; None: its processes did not live long enough.
    """

    role: str
    processes: int
    seconds: float = 0.0
    rows: int = 0
    own_mb: float = 0.0
    rss_mb: float = 0.0
    most_mb: float = 0.0
    files: float = 0.0
    own_growth: float = 0.0
    rss_growth: float = 0.0
    files_growth: float = 0.0
    flat: bool | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data, rounded."""
        return {name: round(v, 3) if isinstance(v, float) else v for name, v in asdict(self).items()}


def growths(samples: Iterable[Sample]) -> list[Growth]:
    """The growth of each role."""
    lives: dict[str, dict[tuple[int, float], list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        role = "worker" if sample.role.startswith("worker") else sample.role
        lives[role][sample.process].append(sample)
    return [_growth(role, [_warm(life) for life in lives[role].values()]) for role in JUDGED]


def slope(lives: Sequence[Sequence[Sample]], value: Callable[[Sample], float]) -> float:
    """Growth of `value` for each 10,000 rows: one slope for all lives, each with a level of its own."""
    across = within = 0.0
    for life in lives:
        x = np.array([sample.rows for sample in life], dtype=float)
        y = np.array([value(sample) for sample in life], dtype=float)
        across += float(((x - x.mean()) * (y - y.mean())).sum())
        within += float(((x - x.mean()) ** 2).sum())
    return PER_ROWS * across / within if within else 0.0


def _warm(life: list[Sample]) -> list[Sample]:
    """Without the warm-up and the time after the last row; empty if what is left is too short to count."""
    last = life[-1].rows
    rest = [one for one in life if one.time >= life[0].time + WARM_SECONDS and one.rows < last]
    long = len(rest) >= LEAST_SAMPLES and rest[-1].time - rest[0].time >= LONG_SECONDS
    return rest if long and rest[-1].rows > rest[0].rows else []


def _growth(role: str, lives: list[list[Sample]]) -> Growth:
    long = [life for life in lives if life]
    rows = sum(life[-1].rows - life[0].rows for life in long)
    if rows < LEAST_ROWS:
        return Growth(role, 0)
    every = [sample for life in long for sample in life]
    own = median(sample.own for sample in every)
    own_growth = slope(long, lambda sample: sample.own)
    files_growth = slope(long, lambda sample: sample.files)
    whole = WHOLE_ROWS / PER_ROWS
    return Growth(
        role=role,
        processes=len(long),
        seconds=max(life[-1].time - life[0].time for life in long),
        rows=rows,
        own_mb=own,
        rss_mb=median(sample.rss for sample in every),
        most_mb=max(sample.rss for sample in every),
        files=median(sample.files for sample in every),
        own_growth=own_growth,
        rss_growth=slope(long, lambda sample: sample.rss),
        files_growth=files_growth,
        flat=own_growth * whole <= MEMORY_SHARE * own and files_growth * whole <= FILES,
    )
