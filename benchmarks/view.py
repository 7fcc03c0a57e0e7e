"""What a person waits for in the run browser over a run of a million rows, in headless Chromium.

Times are those of the browser itself: from the start of a navigation until the page is laid out and something of it is
painted. Each round starts a server anew, which has never opened the run. The files are in the system's cache.

``python -m benchmarks.view --rows N --data DIRECTORY`` makes another size, and keeps the run.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import psutil

from benchmarks.__main__ import RESULTS, machine, versions, write
from benchmarks.view_run import CHECKPOINT, IMAGES, PARTS, make_run

if TYPE_CHECKING:
    from playwright.sync_api import Page

TITLE = "the run browser over a million rows, in Chromium"
ROWS = 1_000_000
TIMES = 5
"""So often a round does what can be done again with other words."""
FIRST, FILTER, ROW, MEMORY = "first rows, cold", "filter", "row page", "memory of the server"
LIMITS = {FIRST: 1500.0, FILTER: 200.0, ROW: 300.0, MEMORY: 500.0}
MARKDOWN = RESULTS / "view.md"
_QUIET = 0.05  # CPU seconds in a second
_PATIENCE = 300  # seconds
_TIMING = """() => {
    const [at] = performance.getEntriesByType("navigation");
    const painted = performance.getEntriesByName("first-contentful-paint")[0];
    return painted && at.domContentLoadedEventEnd ? Math.max(at.domContentLoadedEventEnd, painted.startTime) : null;
}"""


@dataclass(slots=True)
class Seen:
    """What was measured, by name: milliseconds, and megabytes for `MEMORY`."""

    found: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    indexed: list[float] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)


def run(rounds: int) -> list[dict[str, Any]]:
    """Milliseconds of what a person does, and megabytes of the server at its peak, exports included."""
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as folder:
        return measured(Path(folder), ROWS, rounds)


def measured(home: Path, rows: int, rounds: int) -> list[dict[str, Any]]:
    """As `run`, over a run of so many rows below `home`; writes `MARKDOWN` too."""
    make_run(home, rows)
    seen = Seen()
    for number in range(rounds):
        seen.loads.append(os.getloadavg()[0])
        _round(home, rows, number, seen, last=number == rounds - 1)
    figures = [_figure(name, values) for name, values in seen.found.items()]
    MARKDOWN.write_text("\n".join(_lines(rows, rounds, seen, figures)))
    return figures


def _round(home: Path, rows: int, number: int, seen: Seen, *, last: bool) -> None:
    random_rows = random.Random(number)
    place = {"in": home.name, "path": f"run-{rows}"}
    with _server(home) as (origin, server), _browser() as page:

        def timed(name: str, path: str, **given: Any) -> None:
            page.goto(f"{origin}/{path}?{urlencode({**place, **given})}")
            seen.found[name].append(_painted(page))

        page.goto(f"{origin}/")
        timed(FIRST, "rows")
        seen.indexed.append(_settled(server))
        for time_of_round in range(TIMES):
            slower = f"{500 + 10 * time_of_round}"
            page.goto(f"{origin}/rows?{urlencode(place)}")
            _ask(page, f'error.kind = "infer.crashed" and latency_ms > {slower}')
            seen.found[FILTER].append(_painted(page))
            row = random_rows.randrange(IMAGES)
            timed(ROW, "row", row=row, checkpoint=CHECKPOINT, filter=f"latency_ms > {slower}")
            timed("page deep in the rows", "rows", filter=f"row_id > {random_rows.randrange(rows)}")
            timed("sort by another column", "rows", sort=("ade", "latency_s", "output_tokens")[time_of_round % 3])
            timed("search", "rows", q=f"scene-{random_rows.randrange(rows):08d}")
        if last:
            for form in ("csv", "parquet", "ids"):
                began = time.perf_counter()
                _export(f"{origin}/export?{urlencode({**place, 'form': form})}")
                seen.found[f"export of all rows, {form}"].append(1000 * (time.perf_counter() - began))
        seen.found[MEMORY].append(_peak_mb(server))


def _ask(page: Page, text: str) -> None:
    """Types a filter and shows its rows, as a person does."""
    page.fill("#filter", text)
    with page.expect_navigation():
        page.press("#filter", "Enter")


def _painted(page: Page) -> float:
    """Milliseconds until the page was laid out and painted."""
    page.locator("h1").first.wait_for()
    for _ in range(400):
        found = page.evaluate(_TIMING)
        if found is not None:
            if page.locator("h1").first.inner_text() == "This cannot be shown":
                raise RuntimeError(page.inner_text("main"))
            return float(found)
        time.sleep(0.05)
    raise RuntimeError(f"nothing was painted at {page.url}")


def _settled(server: psutil.Process) -> float:
    """CPU seconds that the server took in the background, until it was at rest."""
    first = before = _cpu(server)
    for _ in range(_PATIENCE // 2):
        time.sleep(2.0)
        now = _cpu(server)
        if now - before < 2 * _QUIET and now - first > _QUIET:
            break
        before = now
    return before - first


def _cpu(server: psutil.Process) -> float:
    return float(sum(server.cpu_times()[:2]))


def _peak_mb(server: psutil.Process) -> float:
    lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024 / 1e6


def _export(address: str) -> None:
    with urllib.request.urlopen(address, timeout=3600) as answer:
        while answer.read(1 << 20):
            pass


@contextmanager
def _server(home: Path) -> Iterator[tuple[str, psutil.Process]]:
    """``proctor view`` in a process of its own: its origin and itself."""
    command = [sys.executable, "-m", "proctor", "view", str(home), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip().rstrip("/"), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


@contextmanager
def _browser() -> Iterator[Page]:
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    if program is None:
        raise RuntimeError("no Chromium on PATH: apt install chromium")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(_PATIENCE * 1000)
        yield page
        browser.close()


def _figure(name: str, values: list[float]) -> dict[str, Any]:
    return {
        "name": name,
        "figure": max(values) if name == MEMORY else statistics.median(values),
        "unit": "MB" if name == MEMORY else "ms",
        "ratio_to": None,
        "rounds": len(values),
        "spread": [min(values), max(values)],
        "limit": LIMITS.get(name),
    }


def _lines(rows: int, rounds: int, seen: Seen, figures: list[dict[str, Any]]) -> list[str]:
    over = [figure["name"] for figure in figures if figure["limit"] is not None and figure["figure"] > figure["limit"]]
    packages = ", ".join(f"{name} {version}" for name, version in versions().items())
    lines = [
        "# The run browser",
        "",
        "Written by `make bench ONLY=view`, never by hand.",
        "",
        f"{datetime.now(UTC).date().isoformat()}, {machine()}, {packages}.",
        "",
        f"{rows:,} rows in {min(PARTS, rows)} parts, {rounds} rounds with a server of their own each; milliseconds are "
        "those of headless Chromium from the start of a navigation until the page is laid out and painted, files in "
        "the system's cache. Filters, rows and searches are other ones each time. The index, made in the background "
        f"after the first page, took {statistics.median(seen.indexed):.1f} CPU seconds; what stands below the first "
        "line was measured when it was there. Memory is the peak of the server, exports included. Load of the machine "
        f"before each round, others' work in it: {', '.join(f'{load:.1f}' for load in seen.loads)}.",
        "",
        f"**{'Within all limits.' if not over else 'Over the limit: ' + ', '.join(over) + '.'}**",
        "",
        "| what | median | unit | smallest to largest | times | limit |",
        "| --- | ---: | --- | ---: | ---: | ---: |",
    ]
    for figure in figures:
        low, high = figure["spread"]
        limit = "" if figure["limit"] is None else f"{figure['limit']:,.0f}"
        cells = [figure["name"], f"{figure['figure']:,.0f}", figure["unit"], f"{low:,.0f} to {high:,.0f}"]
        lines.append(f"| {' | '.join([*cells, str(figure['rounds']), limit])} |")
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.view", description=TITLE)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, required=True, help="where the run is made, and kept")
    arguments = parser.parse_args()
    figures = measured(arguments.data, arguments.rows, arguments.rounds)
    write("view", TITLE, figures)
    for figure in figures:
        print(f"{figure['name']}: {figure['figure']:,.0f} {figure['unit']}", flush=True)


if __name__ == "__main__":
    main()
