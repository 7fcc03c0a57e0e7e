"""The list of runs, and a run."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from proctor.results import RunDir
from proctor.rows import UserError
from proctor.rows.text import told
from proctor.runner.status import read_status
from proctor.view.app.links import Address
from proctor.view.app.site import Answer, Site
from proctor.view.browse.filters import value_text
from proctor.view.browse.marks import changed_at, list_sight, run_sight
from proctor.view.browse.places import Found, Opened, Survey, survey
from proctor.view.browse.runs import DAMAGE, RunLine, account_of, run_line
from proctor.view.browse.states import headline, last_of, state_of
from proctor.view.gather import gather

MOST_RUNS = 200
MOST_EVENTS = 200


def answers(site: Site) -> dict[str, Answer]:
    """What this room answers."""

    site.looks |= {
        "runs": lambda _address: list_sight(list(site.opened.values())),
        "run": lambda address: run_sight(site.run(address).folder),
    }

    def runs(_request: Request) -> Response:
        live = site.following("runs", Address())
        return site.page("runs.html.j2", live=live, directories=runs_page(list(site.opened.values())))

    def run(request: Request) -> Response:
        address = Address.of(request.query_params)
        opened = site.run(address)
        try:
            live = site.following("run", address)
            return site.page("run.html.j2", address=address, live=live, **run_page(opened))
        except DAMAGE as error:  # numbers and texts that nobody would write there but to see what happens
            raise UserError(f"a file of this run is damaged: {told(error)}", where=opened.location) from error

    return {"/": runs, "/run": run}


@dataclass(frozen=True, slots=True)
class Directory:
    """An opened directory as the list shows it, its runs with the one that changed last first.

    Attributes:
        runs: each with its address and what is known of it.
        others: what lies there besides, to be looked at with other commands.
        left_out: how many runs more there are.
    """

    name: str
    location: str
    runs: list[tuple[Found, Address, RunLine]]
    others: list[Found]
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
    others = [found for found in seen.found if found.kind != "run"]
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


def run_page(run: RunDir) -> dict[str, Any]:
    """A run.

    Raises:
        UserError: a file of it is damaged, so much as Proctor itself looks at it; else one of `DAMAGE`.
        OSError: storage failed.
    """
    _, exit_code = account_of(run)  # its types are checked here, and nowhere else
    last, live = last_of(run), run.live
    state = state_of(last, live=live, exit_code=exit_code)
    view, status, events = gather(run, rows=False), read_status(run), run.events()
    return {
        "view": view,
        "status": status,
        "state": state,
        "last": last,
        "verdict": headline(state, view.verdict, last),
        "faults": [(fault, f"error.kind = {value_text(fault.kind)}") for fault in view.faults],
        "events": events[-MOST_EVENTS:],
        "events_left_out": max(0, len(events) - MOST_EVENTS),
    }
