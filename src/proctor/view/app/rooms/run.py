"""A run, and what its engines left behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from proctor.results import Ledger, RunDir
from proctor.rows import Event, UserError
from proctor.rows.text import told
from proctor.runner.status import RunStatus, read_status
from proctor.view.app.cells import minute, rate
from proctor.view.app.links import Address
from proctor.view.app.site import Answer, Site
from proctor.view.browse.confusions import cell_filter, has_filter, text_columns
from proctor.view.browse.evidence import Evidence, dump_of, evidence_of, read_evidence
from proctor.view.browse.filters import value_text
from proctor.view.browse.marks import run_sight
from proctor.view.browse.runs import DAMAGE, account_of
from proctor.view.browse.states import CRASHED, RUNNING, Last, State, headline, last_of, state_of
from proctor.view.faults import FaultKind, fault_kinds
from proctor.view.formats import duration
from proctor.view.gather import RunView, gather
from proctor.view.planned import foretold, plan_of

MOST_EVENTS = 200


def answers(site: Site) -> dict[str, Answer]:
    """What this room answers."""

    site.looks["run"] = lambda address: run_sight(site.run(address).folder)

    def run(request: Request) -> Response:
        address = Address.of(request.query_params)
        opened, live = site.run(address), site.following("run", address)
        try:
            return site.page("run.html.j2", address=address, live=live, **run_page(opened, address))
        except DAMAGE as error:  # numbers and texts that nobody would write there but to see what happens
            raise UserError(f"a file of this run is damaged: {told(error)}", where=opened.location) from error

    def stalls(request: Request) -> Response:
        address, name = Address.of(request.query_params), request.query_params.get("file", "")
        opened = site.run(address)
        if name:
            return site.page("stall.html.j2", address=address, name=name, shown=read_evidence(opened, name))
        files, left_out = evidence_of(opened)
        return site.page("stalls.html.j2", address=address, files=files, left_out=left_out)

    return {"/run": run, "/stalls": stalls}


def run_page(run: RunDir, address: Address) -> dict[str, Any]:
    """A run.

    Raises:
        UserError: a file of it is damaged, so much as Proctor itself looks at it; else one of `DAMAGE`.
        OSError: storage failed.
    """
    _, exit_code = account_of(run)  # its types are checked here, and nowhere else
    last, state = last_of(run), state_of(last_of(run), live=run.live, exit_code=exit_code)
    view, status, events = gather(run, rows=False), read_status(run), run.events()
    plan, left_behind = plan_of(run), evidence_of(run)[0]
    return {
        "view": view,
        "state": state,
        "verdict": headline(state, view.verdict, last),
        "now": _now(state, last),
        "closing": state.word == RUNNING and last is not None and last.closing,
        "so_far": _so_far(state, view, status, last or Last()),
        "doubts": status.doubts,
        "faults": [(fault, f"error.kind = {value_text(fault.kind)}") for fault in _faults(state, view, last)],
        "events": events[-MOST_EVENTS:],
        "events_left_out": max(0, len(events) - MOST_EVENTS),
        "plan": plan,
        "foretold": [] if plan is None else foretold(plan, last, events),
        "stalls": bool(left_behind),
        "hashes": _hashes(run),
        "rows_link": partial(_rows_link, address),
        "cell_link": _cell_links(run, view, address),
        "dump_link": _dump_links(left_behind, address),
    }


def _now(state: State, last: Last | None) -> list[tuple[str, str]]:
    """What a run under way does at this moment."""
    if state.word != RUNNING or last is None:
        return []
    active = [] if last.active is None else [("Under way", f"{last.active[0]}, sweep {last.active[1]}")]
    left = [] if last.left is None else [("Time left", duration(last.left))]
    return [*active, ("Rows/s", rate(last.rate)), *left, ("Last told", f"{minute(last.time)} UTC")]


def _so_far(state: State, view: RunView, status: RunStatus, last: Last) -> list[tuple[str, int, int, int]]:
    """Each checkpoint with its rows in all, those done and the errors among them, where no account tells it."""
    if view.ledgers and state.word not in (RUNNING, CRASHED):
        return []
    totals = {name: counts.total for name, counts in last.checkpoints.items()}
    return [
        (name, status.total or totals.get(name, 0), done, status.errors.get(name, 0))
        for name, done in status.done.items()
    ]


def _faults(state: State, view: RunView, last: Last | None) -> list[FaultKind]:
    """Errors by kind: of the account, or of what a run without a new one has told since it was last started."""
    if last is None or (view.ledgers and state.word not in (RUNNING, CRASHED)):
        return view.faults
    return fault_kinds([Ledger(name, errors=counts.errors) for name, counts in last.checkpoints.items()], None)


def _hashes(run: RunDir) -> dict[str, str]:
    """What tells this run's spec and data from others."""
    text, source = run.spec_text(), run.source()
    found = {} if text is None else {"SHA-256 of the spec": sha256(text.encode("utf-8", "replace")).hexdigest()}
    return found if source is None else {**found, "fingerprint of the data": source.fingerprint}


def _rows_link(address: Address, checkpoint: str, kind: str = "") -> str:
    """The address of a checkpoint's rows; with an error kind, of those that ended with it."""
    error = f" and error.kind = {value_text(kind)}" if kind else ""
    return address.place.filtered(f"checkpoint = {value_text(checkpoint)}{error}")


def _cell_links(run: RunDir, view: RunView, address: Address) -> Callable[[str, str], Callable[[str, str], str] | None]:
    """For a checkpoint and a field, the addresses of the rows of each cell; None where they cannot be asked for."""
    columns = text_columns(run) if view.heats else frozenset()

    def of(checkpoint: str, field: str) -> Callable[[str, str], str] | None:
        if not has_filter(columns, field):
            return None
        return lambda target, said: address.place.filtered(cell_filter(checkpoint, field, target, said))

    return of


def _dump_links(files: Sequence[Evidence], address: Address) -> Callable[[Event], str | None]:
    """Where the stack dump of an event can be read; None if it has none, or none that is there."""
    there = {file.name for file in files}

    def of(event: Event) -> str | None:
        name = dump_of(event)
        return address.place.to("stalls", file=name) if name in there else None

    return of
