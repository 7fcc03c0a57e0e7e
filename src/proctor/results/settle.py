"""Puts the results of a run in order while nobody writes: no part broken, no key twice.

A worker that dies after its part was written may be replayed with another set of rows, and a power cut leaves half a
file. Both are mended here, before anything is counted; what was mended is reported.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from proctor.results.parts import ids_of, is_tombstone, parts_of, write_records


@dataclass(slots=True)
class Settled:
    """What the results of one checkpoint hold, after mending.

    Attributes:
        done: ids with a final record.
        duplicates: how many records of a key that was there already were taken out.
        set_aside: names of parts that could not be read; their rows run again.
    """

    done: BitMap64 = field(default_factory=BitMap64)
    duplicates: int = 0
    set_aside: list[str] = field(default_factory=list)


def settle(results: Path, checkpoint: str) -> Settled:
    """Mends the parts of `checkpoint` and says which rows are done. Only to be called while no worker writes.

    A record that comes later in name order gives way; unreadable parts move to ``aside/`` beside the results.
    """
    settled, rewritten = Settled(), set[Path]()
    for part in parts_of(results, checkpoint, tombstones=False):
        if part in rewritten:
            continue  # what is left of an earlier part has just taken this name: its rows are counted
        try:
            ids = ids_of(part)
            rows = pq.read_metadata(part).num_rows
        except (OSError, pa.ArrowInvalid):
            _set_aside(part)
            settled.set_aside.append(part.name)
            continue
        seen = ids & settled.done
        if seen or rows != len(ids):
            settled.duplicates += rows - len(ids - seen)
            rewritten.update(_without(part, seen))
        settled.done |= ids
    return settled


def done_ids(results: Path, checkpoint: str) -> BitMap64:
    """Ids of `checkpoint` that have a final record now. Changes nothing; unreadable parts count for nothing."""
    done = BitMap64()
    for part in parts_of(results, checkpoint, tombstones=False):
        with contextlib.suppress(OSError, pa.ArrowInvalid):
            done |= ids_of(part)
    return done


def lift_tombstones(results: Path, checkpoint: str) -> int:
    """Removes the tombstones of `checkpoint`, so that its unanswered rows get another chance. Returns how many."""
    lifted = 0
    for part in parts_of(results, checkpoint):
        if is_tombstone(part):
            with contextlib.suppress(OSError, pa.ArrowInvalid):  # a damaged one has nothing to say either
                lifted += pq.read_metadata(part).num_rows
            part.unlink()
    return lifted


def _set_aside(part: Path) -> None:
    aside = part.parent.parent / "aside"
    aside.mkdir(exist_ok=True)
    part.replace(aside / part.name)


def _without(part: Path, seen: BitMap64) -> list[Path]:
    """Rewrites `part` without the rows in `seen` and with each remaining key once; gives the part that holds the rest.

    The smaller part is written before the old one goes: a crash in between leaves duplicates, which the next call
    takes out, and never a gap.
    """
    records = pq.read_table(part)
    keep, taken = np.zeros(records.num_rows, dtype=bool), set(seen)
    for position, row_id in enumerate(records["row_id"].to_pylist()):
        keep[position] = row_id not in taken
        taken.add(row_id)
    rest = records.filter(pa.array(keep))
    written = write_records(part.parent, rest) if rest.num_rows else []
    if part not in written:
        part.unlink()
    return written
