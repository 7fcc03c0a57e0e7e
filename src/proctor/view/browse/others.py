"""What lies in an opened directory besides runs, each in a line: fleets, audits and benches with their verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from proctor.rows import UserError
from proctor.rows.text import line_of, told
from proctor.storage.folder import Folder, LocalFolder
from proctor.storage.lease import is_live
from proctor.view.audit_words import headline
from proctor.view.browse.audits import audit_brief
from proctor.view.browse.benches import bench_brief
from proctor.view.browse.fleets.brief import fleet_brief
from proctor.view.browse.marks import OTHERS, stamps
from proctor.view.browse.places import Found, Kind, Opened, check_own
from proctor.view.browse.runs import DAMAGE
from proctor.view.verdict import Tone

MOST_READ = 50
"""Of each kind; the others are listed without what they say."""
_ORDER: tuple[Kind, ...] = ("fleet", "audit", "bench", "trace", "refused")
_KEPT = 1_000


class Other(NamedTuple):
    """One of them.

    Attributes:
        path: below the opened directory.
        word: what it comes to, in the colour of `tone`; may be empty.
        text: what it says in a line; empty for what was not read.
        problem: why it cannot be read; empty if it can.
    """

    kind: Kind
    path: str
    word: str = ""
    text: str = ""
    tone: Tone = "open"
    problem: str = ""


class Said(NamedTuple):
    """What a thing says of itself; see `Other`."""

    word: str
    text: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class Others:
    """All of them, those of a kind by path."""

    fleets: list[Other]
    rest: list[Other]

    def __len__(self) -> int:
        return len(self.fleets) + len(self.rest)


def others_of(opened: Opened, found: Sequence[Found]) -> Others:
    """Reads what is said of the things found in an opened directory, runs left out."""
    ordered = [one for kind in _ORDER for one in found if one.kind == kind]
    places = {one: place for kind in _ORDER for place, one in enumerate(o for o in ordered if o.kind == kind)}
    with ThreadPoolExecutor(opened.folder.concurrency) as pool:
        read = list(pool.map(lambda one: _other(opened, one, read=places[one] < MOST_READ), ordered))
    return Others([one for one in read if one.kind == "fleet"], [one for one in read if one.kind != "fleet"])


def _other(opened: Opened, found: Found, *, read: bool) -> Other:
    if found.kind not in _BRIEFS or not read:
        return Other(found.kind, found.path, problem=found.why)
    try:
        said = _said(found.kind, opened.below(found.path))
        return Other(found.kind, found.path, line_of(said.word), line_of(said.text), said.tone)
    except (UserError, OSError, *DAMAGE) as error:
        problem = str(error) if isinstance(error, UserError) else told(error)
        return Other(found.kind, found.path, problem=line_of(problem))


def _said(kind: Kind, folder: Folder) -> Said:
    """What a thing says; on a local disk that is remembered as long as its files stay as they are."""
    if not isinstance(folder, LocalFolder):
        return _BRIEFS[kind](folder)
    check_own(folder, [".lock", "lease.json"], 1 << 20)
    live = kind == "fleet" and is_live(folder)
    return _remembered(kind, folder.root, (live, *stamps(folder, OTHERS[kind])))


@lru_cache(_KEPT)
def _remembered(kind: Kind, root: Path, _stamps: tuple[object, ...]) -> Said:
    return _BRIEFS[kind](LocalFolder(root))


def _fleet(folder: Folder) -> Said:
    return Said(*fleet_brief(folder))


def _audit(folder: Folder) -> Said:
    brief = audit_brief(folder)
    head = headline(brief.verdict.kind, brief.verdict.sentence, brief.verdict.nature)
    return Said(f"{brief.checkpoint}: {head.text}", head.sentence, head.tone)


def _bench(folder: Folder) -> Said:
    return Said("", bench_brief(folder).verdict.sentence, "open")


_BRIEFS: dict[Kind, Callable[[Folder], Said]] = {"fleet": _fleet, "audit": _audit, "bench": _bench}
