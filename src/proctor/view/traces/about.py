"""What the page of a trace shows: what it is, what to know before trusting it, and where the time went."""

from __future__ import annotations

from typing import Any, NamedTuple

from proctor.rows import UserError
from proctor.trace.model import GraphMode
from proctor.trace.summary.summary import Summary
from proctor.trace.work.census import kept_census
from proctor.trace.work.scope import By
from proctor.view.formats import clip, percent
from proctor.view.traces.naming import gpu_names
from proctor.view.traces.shelf import OpenTrace
from proctor.view.traces.units import instant, size, span

MOST_LINES = 40
MOST_PROCESSES = 8
_GRAPHS = {
    GraphMode.GRAPH: "recorded as a whole, without their kernels",
    GraphMode.NODE: "recorded kernel by kernel",
}
_CALLS = """
    SELECT name, COUNT(*), SUM("end" - start), MAX("end" - start) FROM calls
    GROUP BY name ORDER BY SUM("end" - start) DESC LIMIT 40
"""
GROUPINGS = {
    By.FULL: "kernel",
    By.CATEGORY: "kind of work",
    By.NVTX: "NVTX range",
    By.STREAM: "stream",
    By.DEVICE: "GPU",
    By.PROCESS: "process",
}
"""What the census can be grouped by, and what a group is then."""


class CallLine(NamedTuple):
    """A call of the CUDA API: how often, and how long in sum and at the most, ns."""

    name: str
    calls: int
    total: int
    most: int


def about(opened: OpenTrace, by: str) -> dict[str, Any]:
    """The page of a trace.

    Args:
        opened: the trace.
        by: what the census is grouped by, one of `GROUPINGS`.

    Raises:
        UserError: there is no such grouping, or the file is damaged.
    """
    grouping = next((one for one in GROUPINGS if one == by), None)
    if grouping is None:
        raise UserError(f"a census has no groups by {by[:40]!r}", fix=f"one of {', '.join(GROUPINGS)}")
    summary = opened.summary
    census, wrong = None, ""
    try:
        census = kept_census(opened.trace, grouping) if summary.calls else None
    except UserError as error:  # no ranges, or not enough memory for a census by them
        wrong = error.what
    return {
        "facts": facts(opened, summary),
        "notes": opened.trace.notes,
        "summary": summary,
        "answers": {kernel.name: kernel for kernel in summary.kernels},
        "by": grouping,
        "groupings": GROUPINGS,
        "census": census,
        "wrong": wrong,
        "lines": census.lines[:MOST_LINES] if census else (),
        "calls": api_calls(opened),
    }


def facts(opened: OpenTrace, summary: Summary) -> list[tuple[str, str]]:
    """What was captured, of what, and how much of it."""
    trace, file = opened.trace, opened.file
    named = [f"{one.pid} {one.name}".strip() for one in trace.processes]
    more = f" and {len(named) - MOST_PROCESSES} others" if len(named) > MOST_PROCESSES else ""
    schema = f", schema {trace.schema}" if trace.schema else ""
    found = [
        ("Written by", f"{trace.tool or trace.origin}{schema}"),
        ("Window", span(summary.window_ns)),
        ("GPUs", "; ".join(gpu_names(trace.gpus)) or "none"),
        ("Processes", (", ".join(named[:MOST_PROCESSES]) or "none named") + more),
        ("Kernels", f"{summary.calls:,}, {span(summary.total)} in sum"),
        ("Copies", f"{summary.copies:,}, {span(summary.copy_time)}, {size(summary.copied)}"),
        ("CUDA graphs, if any", _GRAPHS.get(trace.graph_mode, "")),
        ("Driver", trace.driver),
        ("File", size(file.size)),
        ("Times count from", f"{instant(opened.zero)} of its own clock"),
    ]
    return [(label, clip(value, 300)) for label, value in found if value]


def told_times(summary: Summary) -> list[str]:
    """Why the GPUs idled, and whether communication was hidden, in sentences."""
    found = []
    if gap := summary.gap:
        found.append(
            f"Idle, mostly: {gap.cause}, {span(gap.length)} in {gap.gaps:,} gaps of the {span(gap.ranked)} that were "
            f"looked into; the longest lasts {span(gap.longest)}: {gap.why}."
        )
    if talk := summary.communication:
        exposed = talk.exposed / talk.total if talk.total else 0.0
        found.append(
            f"Communication: {span(talk.total)}, {percent(talk.share)} of busy time; {percent(exposed)} of it exposed "
            "(no other kernel ran on that GPU)."
        )
    found += [f"Transfers: {one.name}: {one.evidence}" for one in summary.antipatterns]
    return found


def api_calls(opened: OpenTrace) -> list[CallLine]:
    """Calls of the CUDA API by name, those with the most time first; at most 40."""
    rows = list(opened.trace.rows(_CALLS))
    texts = opened.trace.text(name for name, *_ in rows if name is not None)
    return [CallLine(texts.get(name, "(unnamed)"), *rest) for name, *rest in rows]
