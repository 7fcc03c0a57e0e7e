"""Whether something that is shown has changed: told from names, sizes and times of files, never from their content."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import xxhash

from proctor.rows import UserError
from proctor.storage.folder import Folder, LocalFolder
from proctor.storage.lease import seems_held
from proctor.view.browse.places import Opened, check_own, survey

SECONDS = 1.0
"""Between two looks at a local disk."""
REMOTE_SECONDS = 10.0
"""Between two looks at object storage, where each is a few requests; a list of runs there takes many."""
_LIST_SECONDS = 60.0
_SHOWN = ("spec.yaml", "status.json", "events.jsonl", "reconciliation.json", "metrics.json", "plan.json", "results")
_SMALL = ("spec.yaml", "status.json", "reconciliation.json", "metrics.json", "lease.json")
_FLEET = ("fleet.json", "events.jsonl", "holds")
OTHERS = {"fleet": _FLEET, "audit": ("audit.json",), "bench": ("compile.json",)}
"""What a list reads of things other than runs."""
_FLEET_SECONDS = 5.0
"""Between two looks at a fleet, whose page is read from many runs."""
_HELD = ("lease.json", ".lock")
_FRESH_SECONDS = 120.0
"""A lease that was renewed so lately may be held; it is renewed every ten seconds."""
_MOST_BYTES = 1 << 20


class Sight(NamedTuple):
    """What one look at something tells.

    Attributes:
        mark: changes whenever what is shown may have changed.
        over: nothing more is to be expected.
        pause: seconds until another look is worth it.
    """

    mark: str
    over: bool = False
    pause: float = SECONDS


def run_sight(folder: Folder) -> Sight:
    """A look at a run. It is over when no driver holds it.

    Raises:
        OSError: storage failed.
    """
    live = seems_held(folder)
    if isinstance(folder, LocalFolder):
        return Sight(mark_of([live, *stamps(folder, _SHOWN)]), not live)
    names = folder.names()
    status = _small(folder, "status.json") if "status.json" in names else b""
    return Sight(mark_of([live, names, status]), not live, REMOTE_SECONDS)


def list_sight(opened: Sequence[Opened]) -> Sight:
    """A look at all that lies in the opened directories; it is never over."""
    local = all(isinstance(one.folder, LocalFolder) for one in opened)
    found = [stamp for one in opened for stamp in _listed(one)]
    return Sight(mark_of(found), pause=SECONDS if local else _LIST_SECONDS)


def fleet_sight(folder: Folder) -> Sight:
    """A look at a fleet and all of its runs. It is over when nobody watches it and no driver holds any of them.

    Raises:
        OSError: storage failed.
    """
    found = [seems_held(folder), *stamps(folder, _FLEET), *_listed(Opened("", folder))]
    at_work = any(one is True for one in found)
    return Sight(mark_of(found), not at_work, _FLEET_SECONDS if isinstance(folder, LocalFolder) else _LIST_SECONDS)


def changed_at(folder: Folder) -> float:
    """When a file of a run on a local disk last changed, in seconds since the epoch; 0 where that is not known."""
    return max((stamp[2] / 1e9 for stamp in stamps(folder, _SHOWN)), default=0.0)


def mark_of(parts: Sequence[object]) -> str:
    """16 hex digits that follow from what `parts` are written as."""
    return xxhash.xxh3_64_hexdigest(repr(parts).encode("utf-8", "replace"))


def _listed(opened: Opened) -> Iterator[object]:
    seen = survey(opened)
    yield seen
    for found in seen.found:
        if found.kind == "run":
            with suppress(OSError, UserError):
                folder = opened.below(found.path)
                check_own(folder, _HELD, _MOST_BYTES)
                yield found.path
                yield from stamps(folder, _SMALL)
                yield _is_fresh(folder) and seems_held(folder)
        elif found.kind in OTHERS:
            with suppress(OSError, UserError):
                yield from stamps(opened.below(found.path), OTHERS[found.kind])


def stamps(folder: Folder, names: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Size and time of the files and folders that are there, of a local disk."""
    if not isinstance(folder, LocalFolder):
        return
    for name in names:
        with suppress(FileNotFoundError):
            seen = (folder.root / name).lstat()
            yield name, seen.st_size, seen.st_mtime_ns


def _is_fresh(folder: Folder) -> bool:
    if not isinstance(folder, LocalFolder):
        return True
    found = list(stamps(folder, ["lease.json"]))
    return bool(found) and abs(time.time() - found[0][2] / 1e9) < _FRESH_SECONDS


def _small(folder: Folder, name: str) -> bytes:
    with suppress(FileNotFoundError):
        return folder.read(name) if folder.size(name) <= _MOST_BYTES else b""
    return b""
