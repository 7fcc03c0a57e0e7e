"""The rules of the Trace Event Format, as a check of what an exporter wrote.

Source: "Trace Event Format" (Google), sections on the JSON object format, complete, instant, flow and metadata events;
and what Perfetto's importer counts as an error: a slice that overlaps another of its track without nesting, a flow that
starts or ends where no slice is open.
"""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from typing import Any

METADATA = {
    "process_name": {"name": str},
    "thread_name": {"name": str},
    "process_sort_index": {"sort_index": int},
    "thread_sort_index": {"sort_index": int},
}


def check(trace: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Raises AssertionError where the trace breaks a rule; returns its events by phase, times in whole nanoseconds.

    Args:
        trace: the JSON, read with ``parse_float=Decimal``.
    """
    assert set(trace) <= {"traceEvents", "displayTimeUnit", "otherData", "metadata"}
    assert trace["displayTimeUnit"] in ("ms", "ns")
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in trace["traceEvents"]:
        check_event(event)
        found[event["ph"]].append(event)
    slices = check_nesting(found["X"])
    check_flows(found["s"], found["f"], slices)
    check_names(found)
    return found


def check_event(event: dict[str, Any]) -> None:
    assert event["ph"] in "XisfM"
    assert isinstance(event["name"], str)
    assert isinstance(event["cat"], str)
    for field in ("pid", "tid"):
        assert isinstance(event[field], int)
        assert 0 <= event[field] < 2**31  # what readers hold it in
    event["ns"] = nanoseconds(event["ts"])
    if event["ph"] == "X":
        event["end"] = event["ns"] + nanoseconds(event["dur"])
        assert event["end"] >= event["ns"]
    else:
        assert "dur" not in event
    if event["ph"] == "i":
        assert event["s"] in "gpt"
    if event["ph"] in "sf":
        assert isinstance(event["id"], int | str)
    if event["ph"] == "M":
        assert {key: type(value) for key, value in event["args"].items()} == METADATA[event["name"]]


def nanoseconds(time: Decimal) -> int:
    """Microseconds to whole nanoseconds: exact, and unchanged by a reader that holds them as a float and rounds."""
    assert isinstance(time, Decimal), "times have three decimals"
    exact = time * 1000
    assert exact == int(exact)
    assert round(float(time) * 1000) == int(exact)
    return int(exact)


def check_nesting(events: list[dict[str, Any]]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    tracks = defaultdict(list)
    for event in events:
        tracks[event["pid"], event["tid"]].append(event)
    for slices in tracks.values():
        slices.sort(key=lambda event: event["ns"])  # stable, as readers do
        ends: list[int] = []
        for event in slices:
            while ends and ends[-1] <= event["ns"]:
                ends.pop()
            assert not ends or event["end"] <= ends[-1], event
            ends.append(event["end"])
    return tracks


def check_flows(
    starts: list[dict[str, Any]], ends: list[dict[str, Any]], tracks: dict[tuple[int, int], list[dict[str, Any]]]
) -> None:
    assert len({event["id"] for event in starts}) == len(starts) == len(ends)
    by_id = {event["id"]: event for event in starts}
    begins = {(*track, event["ns"]) for track, slices in tracks.items() for event in slices}
    for end in ends:
        start = by_id[end["id"]]
        assert (start["name"], start["cat"]) == (end["name"], end["cat"])
        assert start["ns"] <= end["ns"]
        assert end["bp"] == "e"
        for event in (start, end):
            assert (event["pid"], event["tid"], event["ns"]) in begins, event


def check_names(found: dict[str, list[dict[str, Any]]]) -> None:
    named = {(event["name"], event["pid"], event["tid"]) for event in found["M"]}
    assert len(named) == len(found["M"])
    processes = {event["pid"] for event in found["M"] if event["name"] == "process_name"}
    threads = {event["pid"] for event in found["M"] if event["name"] == "thread_name"}
    assert processes == threads
    for event in (*found["X"], *found["i"]):
        assert ("thread_name", event["pid"], event["tid"]) in named
        assert ("process_name", event["pid"], 0) in named
