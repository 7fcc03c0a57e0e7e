"""The drill of a fleet: ``python -m benchmarks.fleet [--cells 80]`` writes ``results/fleet.json`` and ``fleet.md``."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.__main__ import RESULTS, machine, versions
from benchmarks.drill import Drilled, drill
from benchmarks.drill_cells import EACH, ENGINES, ROWS
from benchmarks.nodes import GPUS


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.fleet", description=__doc__)
    parser.add_argument("--cells", type=int, default=80)
    parser.add_argument("--minutes", type=float, default=240.0)
    parser.add_argument("--engine", choices=ENGINES, default="transformers", help="of the tiny model, or scripted")
    parser.add_argument("--keep", type=Path, help="an empty directory with a short path for everything, which stays")
    arguments = parser.parse_args()

    def say(text: str) -> None:
        print(f"{datetime.now(UTC):%H:%M:%SZ} {text}", flush=True)

    found = drill(arguments.cells, arguments.engine, say, arguments.minutes * 60, arguments.keep)
    faults = faults_of(found)
    RESULTS.mkdir(exist_ok=True)
    content = to_json(found, faults)
    (RESULTS / "fleet.json").write_text(json.dumps(content, indent=2) + "\n")
    (RESULTS / "fleet.md").write_text(to_markdown(found, content))
    print(to_markdown(found, content))
    if faults:
        sys.exit("\n".join(faults))
    print(f"drill done: {RESULTS / 'fleet.md'}")


def faults_of(found: Drilled) -> list[str]:
    """What is not as it must be; nothing if all is."""
    seen, most = found.seen, GPUS // EACH
    checks = [
        (found.exit_code == 0, f"the watcher ended with {found.exit_code}"),
        (found.complete == found.cells, f"{found.complete} of {found.cells} cells are complete"),
        (0 < seen.most <= most, f"{seen.most} drivers at the same time"),
        (not found.differing, f"cells of one checkpoint gave different answers: {found.differing}"),
        (found.gpus <= GPUS, f"{found.gpus:g} GPUs admitted at the same time"),
        (not seen.twice, f"two drivers at the same time: {sorted(seen.twice)}"),
        (not seen.unasked, f"drivers of units that were not admitted: {sorted(seen.unasked)}"),
        (any("no progress" in text for text in found.hung), f"the cell that hangs was not reaped: {found.hung}"),
        (any("pending" in text for text in found.stuck), f"the job that never starts was not withdrawn: {found.stuck}"),
        (found.node_caught > 0, "no engine was at work on the second node when it was ended"),
        (found.head_caught > 0, "no cell was at work when the head was ended"),
        (found.events.get("cluster.lost", 0) > 0, "the loss of the cluster was not noticed"),
        (found.events.get("watcher.started", 0) == 2, "there were not two watchers"),
    ]
    return [text for fine, text in checks if not fine]


def to_json(found: Drilled, faults: list[str]) -> dict[str, Any]:
    """Plain data. Without ``figures``, since the index of results shows ratios."""
    seen = {**asdict(found.seen), "drivers": len(found.seen.drivers)}
    seen |= {name: sorted(seen[name]) for name in ("twice", "unasked")}
    date = datetime.now(UTC).date().isoformat()
    about = {"name": "fleet", "date": date, "machine": machine(), "versions": versions()}
    return {**about, **asdict(found), "seen": seen, "faults": faults}


_ANSWERED = {
    "transformers": "answered by the tiny model's four checkpoints in turn, in transformers on CPUs",
    "scripted": "answered by the scripted engine",
}


def to_markdown(found: Drilled, content: dict[str, Any]) -> str:
    """The page."""
    events = "\n".join(f"| `{kind}` | {count} |" for kind, count in sorted(found.events.items()))
    verdict = "Everything was as it must be." if not content["faults"] else "; ".join(content["faults"])
    return f"""# The drill of a fleet

Written by `make drill`, never by hand. {content["date"]}, {content["machine"]}, Ray {content["versions"]["ray"]}.

{found.cells} cells of {ROWS} rows, {_ANSWERED[found.engine]}, {EACH} GPUs each, on a Ray head and a second
node with {GPUS // 2} GPUs each that do not exist. One cell hung, the job of one never started, the watcher was killed
and started again, the second node was ended, the head was killed and started again. {verdict}

| what | |
| --- | ---: |
| cells complete, each row answered once | {found.complete} of {found.cells} |
| drivers at the same time, at most | {found.seen.most} |
| checkpoints whose cells did not all give the same answers | {len(found.differing)} |
| GPUs admitted at the same time, at most | {found.gpus:g} of {GPUS} |
| units with two drivers at the same time | {len(found.seen.twice)} |
| drivers of units that waited | {len(found.seen.unasked)} |
| engines at work on the second node when it was ended | {found.node_caught} |
| cells at work when the head was ended | {found.head_caught} |
| attempts that had a driver | {len(found.seen.drivers)} |
| attempts that the cluster ended, and that do not count | {found.interrupted} |
| seconds without progress after which a job was stopped | {found.reap_after:g} |
| looks at the machine's processes | {found.seen.looks:,} |
| load of the machine on average, others' work in it | {found.seen.load:.1f} |
| minutes | {found.seconds / 60:.1f} |

| event | how often |
| --- | ---: |
{events}
"""


if __name__ == "__main__":
    main()
