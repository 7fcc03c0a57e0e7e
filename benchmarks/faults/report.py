"""The matrix as files: ``faults.json`` holds the cells, ``faults.md`` shows them. Both are written by the command."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from benchmarks.__main__ import RESULTS, machine, versions
from benchmarks.faults.matrix import FAULTS, Fault
from benchmarks.faults.systems import NO_PROGRESS_SECONDS, REPLICAS, ROW_MS, STALL_SECONDS, SYSTEMS

JSON, MARKDOWN = RESULTS / "faults.json", RESULTS / "faults.md"
BAD = ("lost", "blank_as_success", "wrong", "duplicated", "innocents_harmed", "orphans")
"""What must be 0."""
_HEADS = {
    "answered": "answered",
    "errors": "errors",
    "truncated": "truncated",
    "wrong": "wrong",
    "blank_as_success": "blank as success",
    "lost": "lost",
    "duplicated": "doubled",
    "innocents_harmed": "innocents harmed",
    "recovery_s": "recovery, s",
    "orphans": "orphans",
}


def rows() -> list[dict[str, Any]]:
    """All cells so far."""
    return json.loads(JSON.read_text())["rows"] if JSON.is_file() else []


def merge(row: dict[str, Any]) -> None:
    """Puts a cell in the place of its earlier self."""
    found = {(kept["fault"], kept["system"]): kept for kept in rows()}
    found[row["fault"], row["system"]] = row
    order = [(fault.name, system) for fault in FAULTS for system in SYSTEMS]
    kept = [found[key] for key in order if key in found]
    for fault in FAULTS:
        for system in SYSTEMS:
            if (fault.name, system) in found:
                found[fault.name, system]["recovery_s"] = recovery(found, fault, system)
    document = {
        "name": "faults",
        "title": "what each fault costs, under Proctor and under Ray Data as the field uses it",
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "settings": {
            "row_ms": ROW_MS,
            "engines": REPLICAS,
            "stall_seconds": STALL_SECONDS,
            "no_progress_seconds": NO_PROGRESS_SECONDS,
        },
        "rows": kept,
    }
    RESULTS.mkdir(exist_ok=True)
    JSON.write_text(json.dumps(document, indent=1) + "\n")


def recovery(found: dict[tuple[str, str], dict[str, Any]], fault: Fault, system: str) -> float | None:
    """Seconds that a cell took beyond its control; for faults of the driver, those of the restart."""
    cell, control = found[fault.name, system], found.get((fault.baseline, system))
    if fault.driver and cell.get("restart_seconds") is not None:
        return cell["restart_seconds"]
    if control is None or cell.get("seconds") is None or control.get("seconds") is None:
        return None
    return max(0.0, round(cell["seconds"] - control["seconds"], 1))


def left_out(system: str, fault: str, why: str) -> dict[str, Any]:
    """A cell that could not be run here; it says so and has no numbers."""
    nothing = dict.fromkeys((*_HEADS, "rows", "seconds", "restart_seconds"))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"system": system, "fault": fault, **nothing, "ended": "LEFT OUT", "note": why, "date": now}


def line(row: dict[str, Any]) -> str:
    """A cell in one line, for the terminal."""
    bad = ", ".join(f"{name} {row[name]}" for name in BAD if row[name])
    told = f"answered {row['answered']}" + (f", {bad}" if bad else "")
    note = f"  [{row['note']}]" if row["note"] else ""
    return f"{row['fault']:<26} {row['system']:<17} {told}; {row['seconds']} s; {row['ended']}{note}"


def table() -> str:
    """The whole matrix, for the terminal."""
    head, *lines = matrix({(row["fault"], row["system"]): row for row in rows()})
    widths = [max(len(cells[column]) for cells in [head, *lines]) for column in range(len(head))]
    return "\n".join("  ".join(map(str.ljust, cells, widths)).rstrip() for cells in [head, *lines])


def matrix(found: dict[tuple[str, str], dict[str, Any]]) -> list[list[str]]:
    """A line for each fault, a column for each system, the head first."""
    lines = [
        [fault.name, *(in_short(found.get((fault.name, system))) for system in SYSTEMS)]
        for fault in FAULTS
        if any((fault.name, system) in found for system in SYSTEMS)
    ]
    return [["fault", *SYSTEMS], *lines]


def in_short(row: dict[str, Any] | None) -> str:
    """A cell in some words: rows with their answer, what must be 0 and is not, and the seconds it took to recover."""
    if row is None:
        return ""
    if row["answered"] is None:
        return row["ended"]
    bad = [f"{row[name]:,} {_HEADS[name]}" for name in BAD if row[name]]
    recovery_s = [] if row["recovery_s"] is None else [f"{row['recovery_s']:.0f} s"]
    return ", ".join([f"{row['answered']:,}", *(bad or ["-"]), *recovery_s])


def sound(row: dict[str, Any]) -> bool:
    """Whether a cell cost nothing but what the fault itself struck."""
    return row["answered"] is not None and not any(row[name] for name in BAD)


def write() -> None:
    """Writes ``faults.md`` from ``faults.json``."""
    document = json.loads(JSON.read_text())
    found = {(row["fault"], row["system"]): row for row in document["rows"]}
    lines = [
        "# Fault matrix",
        "",
        "Written by `make faults`, never by hand. What the numbers mean: `docs/faults.md`.",
        "",
        *_summary(document),
        "",
        "### In short",
        "",
        "Each cell: rows with their right answer, what should be 0 and is not, seconds to recover.",
        "",
        *_markdown(matrix(found)),
        "",
    ]
    for fault in FAULTS:
        cells = [found[fault.name, system] for system in SYSTEMS if (fault.name, system) in found]
        if cells:
            lines += [f"### {fault.name}", "", _about(fault), "", *_cells(cells), ""]
    MARKDOWN.write_text("\n".join(lines))


def _summary(document: dict[str, Any]) -> list[str]:
    stamp = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    lines = [
        f"{document['date']}, {document['machine']}, {stamp}.",
        "",
        "| system | faults | without any loss | rows lost | blank as success | wrong | doubled | innocents harmed "
        "| orphans |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for system in SYSTEMS:
        cells = [row for row in document["rows"] if row["system"] == system and row["answered"] is not None]
        sums = [sum(row[name] for row in cells) for name in BAD]
        clean = sum(map(sound, cells))
        lines.append(f"| {system} | {len(cells)} | {clean} | {' | '.join(f'{number:,}' for number in sums)} |")
    return lines


def _markdown(lines: list[list[str]]) -> list[str]:
    head, *rest = [f"| {' | '.join(line)} |" for line in lines]
    return [head, f"|{' --- |' * len(lines[0])}", *rest]


def _about(fault: Fault) -> str:
    guilty = f"{len(fault.guilty):,} of the rows are struck themselves." if fault.guilty else "No row is to blame."
    return f"{fault.what[0].upper()}{fault.what[1:]}. {guilty}"


def _cells(cells: list[dict[str, Any]]) -> list[str]:
    lines = [f"| system | {' | '.join(_HEADS.values())} | ended |", f"| --- |{' ---: |' * len(_HEADS)} --- |"]
    for cell in cells:
        numbers = ["" if cell[name] is None else f"{cell[name]:,}" for name in _HEADS]
        note = f" ({cell['note']})" if cell["note"] else ""
        lines.append(f"| {cell['system']} | {' | '.join(numbers)} | {cell['ended']}{note} |")
    return lines
