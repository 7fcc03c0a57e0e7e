"""The parts of a run as their footers tell them: which may be read, and which rows each may hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from proctor.results import RunDir
from proctor.results.parts import is_damage, parts_of
from proctor.rows.text import line_of
from proctor.storage.folder import LocalFolder

_LEAST, _MOST = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Part:
    """A file of records.

    Attributes:
        rows: how many there are in it.
        first, last: the smallest and the largest row id in it; where its footer does not tell, it may hold any.
        keyed: whether its footer tells that each record has a row id and a checkpoint.
    """

    name: str
    path: Path
    rows: int
    first: int = _LEAST
    last: int = _MOST
    keyed: bool = False


@dataclass(frozen=True, slots=True)
class Parts:
    """The readable parts by name.

    Attributes:
        damaged: names of the others, each with the reason.
        alike: whether all have the same columns, as those of a run do: then only one footer tells them.
    """

    found: dict[str, Part]
    damaged: dict[str, str]
    alike: bool

    @property
    def rows(self) -> int:
        """How many records there are."""
        return sum(part.rows for part in self.found.values())


def read_parts(run: RunDir) -> Parts:
    """Reads the footers. Symbolic links are not followed.

    Raises:
        OSError: storage failed.
    """
    names, damaged, found = parts_of(run.results), dict[str, str](), dict[str, Part]()
    results, alike, keys = run.results, True, _Keys(None, None)
    before: pq.FileMetaData | None = None
    for name, path in zip(names, results.local_copies(names), strict=True):
        if isinstance(results, LocalFolder) and path.is_symlink():
            damaged[name] = "a symbolic link, which is not followed"
            continue
        try:
            footer = pq.read_metadata(path)
        except FileNotFoundError:
            continue  # taken away since it was listed: a run under way replaces tombstones
        except (OSError, pa.ArrowInvalid) as error:
            if not is_damage(error):
                raise
            damaged[name] = f"damaged: {line_of(str(error))}"
            continue
        if before is None or not footer.schema.equals(before.schema):
            alike, keys = alike and before is None, _keys(footer)
        before = footer
        found[name] = _part(name, path, footer, keys)
    return Parts(found, damaged, alike)


def nearest(parts: Sequence[Part], row_id: int | None, most: int, *, falling: bool) -> list[Part]:
    """The parts that hold the next `most` records by row id, those of `row_id` itself included.

    Args:
        parts: among these.
        row_id: where to begin; None is the end that lies first.
        most: how many records are wanted.
        falling: towards smaller ids.
    """
    sign = -1 if falling else 1
    spans = [(sign * (part.last if falling else part.first), sign * (part.first if falling else part.last), part)
             for part in parts]  # fmt: skip
    start = _LEAST if row_id is None else sign * row_id
    beyond = sorted((last, part.rows) for first, last, part in spans if first > start)
    counted, edge = 0, None
    for last, rows in beyond:
        counted += rows
        if counted >= most:
            edge = last
            break
    return [part for first, last, part in spans if last >= start and (edge is None or first <= edge)]


class _Keys(NamedTuple):
    """Where two columns stand; None where they do not."""

    row_id: int | None
    checkpoint: int | None


def _keys(footer: pq.FileMetaData) -> _Keys:
    places = {footer.schema.column(place).path: place for place in range(footer.num_columns)}
    return _Keys(places.get("row_id"), places.get("checkpoint"))


def _part(name: str, path: Path, footer: pq.FileMetaData, keys: _Keys) -> Part:
    if keys.row_id is None or keys.checkpoint is None:
        return Part(name, path, footer.num_rows)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    seen = [group.column(keys.row_id).statistics for group in groups]
    told = [*seen, *(group.column(keys.checkpoint).statistics for group in groups)]
    keyed = all(one is not None and one.has_null_count and one.null_count == 0 for one in told)
    if not keyed or not all(one.has_min_max and isinstance(one.min, int) for one in seen):
        return Part(name, path, footer.num_rows, keyed=keyed)
    first, last = min((one.min for one in seen), default=_LEAST), max((one.max for one in seen), default=_MOST)
    return Part(name, path, footer.num_rows, first, last, keyed)
