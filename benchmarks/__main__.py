"""Runs the benchmarks and writes what they found: ``python -m benchmarks [NAME ...]``.

Each benchmark is a module of this package with ``TITLE`` and ``run(rounds)``, which returns figures: sizes, or ratios
measured side by side in one run (the median of interleaved rounds). They go to ``benchmarks/results/NAME.json``, and
``benchmarks/results/README.md`` is made anew from all of those files.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results")
NAMES = (
    "mds", "remote", "decode", "pipeline", "overhead", "driver_memory", "traces", "transfer", "kv", "swap", "sequence",
    "parallel", "compile", "view",
)  # fmt: skip
PACKAGES = ("proctor", "numpy", "pyarrow", "ray", "pillow", "duckdb")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which of {', '.join(NAMES)} (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds of each measurement")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(NAMES)
    if unknown:
        sys.exit(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    for name in arguments.names or NAMES:
        module = importlib.import_module(f"benchmarks.{name}")
        print(f"== {name}: {module.TITLE}", flush=True)
        figures = module.run(arguments.rounds)
        write(name, module.TITLE, figures)
        for figure in figures:
            print("  ", line(figure), flush=True)
    index()
    print(f"benchmarks done: {RESULTS / 'README.md'}")


def write(name: str, title: str, figures: list[dict[str, Any]]) -> None:
    """Writes one benchmark's result file."""
    RESULTS.mkdir(exist_ok=True)
    result = {
        "name": name,
        "title": title,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "figures": figures,
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")


def index() -> None:
    """Makes the README of the results from the result files."""
    lines = [
        "# Benchmark results",
        "",
        "Written by `make bench`, never by hand. A ratio is measured side by side in one run: the median of",
        "interleaved rounds, with the smallest and largest as its spread. Absolute figures are those of the machine",
        "named.",
        "",
    ]
    for path in sorted(RESULTS.glob("*.json")):
        result = json.loads(path.read_text())
        if "figures" not in result:
            continue
        lines += [
            f"## {result['name']}: {result['title']}",
            "",
            f"{result['date']}, {result['machine']}, {', '.join(f'{k} {v}' for k, v in result['versions'].items())}",
            "",
            "| what | figure | unit | ratio to | rounds | spread |",
            "| --- | ---: | --- | --- | ---: | --- |",
            *(f"| {' | '.join(cells(figure))} |" for figure in result["figures"]),
            "",
        ]
    (RESULTS / "README.md").write_text("\n".join(lines))


def cells(figure: dict[str, Any]) -> list[str]:
    low_high = figure.get("spread")
    spread = "" if low_high is None else f"{low_high[0]:,.4g} to {low_high[1]:,.4g}"
    return [
        figure["name"],
        f"{figure['figure']:,.4g}",
        figure["unit"],
        figure.get("ratio_to") or "",
        str(figure["rounds"]),
        spread,
    ]


def line(figure: dict[str, Any]) -> str:
    name, value, unit, ratio_to, rounds, spread = cells(figure)
    of = f" of {ratio_to}" if ratio_to else ""
    return f"{name}: {value} {unit}{of} ({rounds} rounds, {spread})"


def machine() -> str:
    cores = os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{cores} cores {platform.machine()}, {memory:.0f} GiB, {platform.system()}"


def versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in PACKAGES}}


if __name__ == "__main__":
    main()
