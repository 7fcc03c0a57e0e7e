"""Puts the results of a run in order while nobody writes: no part broken, no key twice.

A worker that dies after its part was written may be replayed with another set of rows, and a power cut leaves half a
file. Both are mended here, before anything is counted; what was mended is reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from proctor.results.parts import is_tombstone, keys_of, parts_of, read_each, read_ids, write_records
from proctor.storage.folder import Folder, Place, open_folder


@dataclass(slots=True)
class Settled:
    """What the results of one checkpoint hold, after mending.

    Attributes:
        done: ids with a final record.
        duplicates: how many records of a key that was there already were taken out.
        set_aside: names of parts that are damaged; their rows run again.
    """

    done: BitMap64 = field(default_factory=BitMap64)
    duplicates: int = 0
    set_aside: list[str] = field(default_factory=list)


def settle(results: Place, checkpoint: str) -> Settled:
    """Mends the parts of `checkpoint` and says which rows are done. Only to be called while no worker writes.

    A record that comes later in name order gives way; damaged parts move to ``aside/`` beside the results.

    Raises:
        OSError: storage failed.
    """
    folder, settled, rewritten = open_folder(results), Settled(), set[str]()
    for part, found in read_each(folder, parts_of(folder, checkpoint, tombstones=False), keys_of(checkpoint)):
        if part in rewritten:
            continue  # what is left of an earlier part has just taken this name: its rows are counted
        if isinstance(found, Exception):
            _set_aside(folder, part)
            settled.set_aside.append(part)
            continue
        ids = BitMap64(found)
        seen = ids & settled.done
        if seen or len(found) != len(ids):
            settled.duplicates += len(found) - len(ids - seen)
            rewritten.update(_without(folder, part, seen))
        settled.done |= ids
    return settled


def done_ids(results: Place, checkpoint: str) -> BitMap64:
    """Ids of `checkpoint` that have a final record now. Changes nothing; damaged parts count for nothing."""
    folder, done = open_folder(results), BitMap64()
    for _, found in read_each(folder, parts_of(folder, checkpoint, tombstones=False), keys_of(checkpoint)):
        if not isinstance(found, Exception):
            done |= BitMap64(found)
    return done


def lift_tombstones(results: Place, checkpoint: str) -> int:
    """Removes the tombstones of `checkpoint`, so that its unanswered rows get another chance. Returns how many."""
    folder, lifted = open_folder(results), 0
    stones = [part for part in parts_of(folder, checkpoint) if is_tombstone(part)]
    for part, found in read_each(folder, stones, read_ids):
        lifted += 0 if isinstance(found, Exception) else len(found)  # a damaged one has nothing to say either
        folder.delete(part)
    return lifted


def _set_aside(results: Folder, part: str) -> None:
    """Copied before it is removed: a crash in between leaves it twice, and never not at all."""
    results.parent.write(f"aside/{part}", results.read(part))
    results.delete(part)


def _without(results: Folder, part: str, seen: BitMap64) -> list[str]:
    """Rewrites `part` without the rows in `seen` and with each remaining key once; gives the part that holds the rest.

    The smaller part is written before the old one goes: a crash in between leaves duplicates, which the next call
    takes out, and never a gap.
    """
    records = pq.read_table(results.open(part))
    keep, taken = np.zeros(records.num_rows, dtype=bool), set(seen)
    for position, row_id in enumerate(records["row_id"].to_pylist()):
        keep[position] = row_id not in taken
        taken.add(row_id)
    rest = records.filter(pa.array(keep))
    written = write_records(results, rest) if rest.num_rows else []
    if part not in written:
        results.delete(part)
    return written
