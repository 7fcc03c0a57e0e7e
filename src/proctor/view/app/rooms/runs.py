"""The list of runs."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from proctor.rows import UserError
from proctor.view.app.links import Address
from proctor.view.app.site import Answer, Site
from proctor.view.browse.marks import changed_at, list_sight
from proctor.view.browse.others import Others, others_of
from proctor.view.browse.places import Found, Opened, Survey, survey
from proctor.view.browse.runs import RunLine, run_line

MOST_RUNS = 200


def answers(site: Site) -> dict[str, Answer]:
    """What this room answers."""

    site.looks["runs"] = lambda _address: list_sight(list(site.opened.values()))

    def runs(_request: Request) -> Response:
        live = site.following("runs", Address())
        return site.page("runs.html.j2", live=live, directories=runs_page(list(site.opened.values())))

    return {"/": runs}


@dataclass(frozen=True, slots=True)
class Directory:
    """An opened directory as the list shows it, its runs with the one that changed last first.

    Attributes:
        runs: each with its address and what is known of it.
        others: what lies there besides.
        left_out: how many runs more there are.
    """

    name: str
    location: str
    runs: list[tuple[Found, Address, RunLine]]
    others: Others
    left_out: int
    survey: Survey


def runs_page(opened: Sequence[Opened]) -> list[Directory]:
    """The list of runs."""
    return [_directory(one) for one in opened]


def _directory(opened: Opened) -> Directory:
    seen = survey(opened)
    runs = sorted((found for found in seen.found if found.kind == "run"), key=lambda found: -_changed(opened, found))
    with ThreadPoolExecutor(opened.folder.concurrency) as pool:
        read = list(pool.map(lambda found: _line(opened, found), runs[:MOST_RUNS]))
    lines = [(found, Address(opened.name, found.path), line) for found, line in zip(runs, read, strict=False)]
    lines.sort(key=lambda line: -line[2].changed)  # in a bucket it is known only now
    others = others_of(opened, seen.found)
    return Directory(opened.name, opened.folder.location, lines, others, max(0, len(runs) - MOST_RUNS), seen)


def _changed(opened: Opened, found: Found) -> float:
    try:
        return changed_at(opened.below(found.path))
    except (UserError, OSError):
        return 0.0


def _line(opened: Opened, found: Found) -> RunLine:
    try:
        return run_line(opened.below(found.path))
    except UserError as error:  # it has become a link since it was found
        return RunLine(problem=str(error))
