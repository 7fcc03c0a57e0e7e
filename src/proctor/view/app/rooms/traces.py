"""GPU traces: which there are, what each tells, its timeline, and what changed between two."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from proctor.rows import UserError
from proctor.rows.text import line_of
from proctor.view.app.site import Answer, Site
from proctor.view.browse.places import survey
from proctor.view.charts.trace_lanes import MOST_ROWS
from proctor.view.traces import addresses, board, units
from proctor.view.traces.about import about, told_times
from proctor.view.traces.addresses import TimelineAddress, key_of
from proctor.view.traces.files import TraceFile, trace_file
from proctor.view.traces.naming import short_kernel
from proctor.view.traces.shelf import TraceShelf
from proctor.view.traces.timeline import event_page, shown
from proctor.view.traces.window import Window

MOST_TRACES = 500
MOST_GPUS = 256
"""In the table of a trace; a made one may tell of millions."""
_HELPERS: dict[str, Any] = {
    "units": units,
    "to": addresses.to,
    "work": addresses.work,
    "told_times": told_times,
    "short_name": short_kernel,
    "most_rows": MOST_ROWS,
    "most_gpus": MOST_GPUS,
}
"""What templates of this room call."""


def answers(site: Site) -> dict[str, Answer]:
    """What this room answers."""
    shelf = TraceShelf()
    site.closing.callback(shelf.close)

    def render(template: str, **context: Any) -> Response:
        return site.page(template, **_HELPERS, **context)

    def traces(request: Request) -> Response:
        given = request.query_params
        return render("traces.html.j2", chosen={side: given.get(side, "") for side in "ab"}, **listed(site))

    def trace(request: Request) -> Response:
        file = _file(site, request)
        with shelf.traces(file) as (opened,):
            return render("trace.html.j2", file=file, **about(opened, request.query_params.get("by") or "full"))

    def timeline(request: Request) -> Response:
        file = _file(site, request)
        with shelf.traces(file) as (opened,):
            view, asked = shown(opened, TimelineAddress.asked(file, request.query_params))
            held = {"left_out": opened.events.left_out, "zero": opened.events.zero}
        return render("trace_timeline.html.j2", file=file, view=view, asked=asked, **held)

    def event(request: Request) -> Response:
        file, given = _file(site, request), request.query_params
        key = key_of(given.get("key", ""))
        with shelf.traces(file) as (opened,):
            back = Window.of(given.get("from", ""), given.get("to", ""), opened.events.span)
            page = event_page(opened, key)
        asked = TimelineAddress(file, mark=f"{key.kind}:{key.id}")
        return render("trace_event.html.j2", file=file, asked=asked, back=back, **page)

    def diff(request: Request) -> Response:
        given = request.query_params
        a, b = (_named(site, given.get(side, ""), side.upper()) for side in "ab")
        per, force = given.get("per", "").strip(), given.get("force", "") == "yes"
        found = shelf.diff(a, b, per[:400], force=force)
        view = board.board_view(found, a, b)
        return render(
            "trace_diff.html.j2", a=a, b=b, per=per, force=force, diff=found, view=view, bars_of=board.bars_of,
            names={side: addresses.named_file(file) for side, file in (("a", a), ("b", b))},
        )  # fmt: skip

    return {
        "/traces": traces,
        "/trace": trace,
        "/trace/diff": diff,
        "/timeline": timeline,
        "/timeline/event": event,
    }


def listed(site: Site) -> dict[str, Any]:
    """Traces below the opened directories, each with the reason if it cannot be opened."""
    found: list[tuple[str, str, TraceFile | None, str]] = []
    cuts: list[str] = []
    for opened in site.opened.values():
        seen = survey(opened)
        cuts += [f"{opened.name}: {seen.cut}"] if seen.cut else []
        for path in (one.path for one in seen.found if one.kind == "trace"):
            try:
                file = trace_file(site.opened, opened.name, path)
                found.append((opened.name, path, file, ""))
            except (UserError, OSError) as error:
                found.append((opened.name, path, None, str(error)))
    return {"traces": found[:MOST_TRACES], "left_out": max(0, len(found) - MOST_TRACES), "cuts": cuts}


def _file(site: Site, request: Request) -> TraceFile:
    given = request.query_params
    return trace_file(site.opened, given.get("in", ""), given.get("path", ""))


def _named(site: Site, word: str, side: str) -> TraceFile:
    """The trace that ``directory/path`` names."""
    if not word:
        raise UserError(f"no trace is chosen as {side}", fix="choose two traces in the list of traces")
    opened, _, path = word.partition("/")
    if not path:
        raise UserError("no trace of an opened directory", where=line_of(word)[:200])
    return trace_file(site.opened, opened, path)
