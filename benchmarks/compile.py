"""Was compiling worth it: the tiny Qwen3-VL, and a random tower of the size that vision encoders have.

Beside the figures this writes ``results/compile.md``: what ``proctor compile bench`` says of both.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import Qwen3VLForConditionalGeneration

from proctor.compile.bench import Options, measure
from proctor.compile.model import Compilation, Finding, Measured, Verdict
from proctor.compile.verdict import verdict
from proctor.compile.words import rows as rows_told
from proctor.compile.words import seconds, seconds_between, times_between
from proctor.demo.dataset import write_dataset
from proctor.demo.model import WEIGHTS_FILE, model_config, save_weights, write_shared_files
from proctor.demo.weights import model_dirs
from proctor.spec import RunSpec, build_spec

TITLE = "compiling the vision encoder on a CPU: what it saves, what it costs, what to do"
PAGE = Path(__file__).with_name("results") / "compile.md"
HIDDEN, DEPTH = 1024, 24
ROWS = 240
PLANNED = 1_000_000
"""Rows of the run that is judged: of 240 none could pay for compiling anything, and nothing else would be said."""


class Subject(NamedTuple):
    """A model to measure, and how much."""

    title: str
    model: Path
    batch: int
    max_tokens: int
    options: Options


def run(rounds: int) -> list[dict[str, Any]]:
    """See `TITLE`."""
    sections, figures = [], []
    with tempfile.TemporaryDirectory(prefix="proctor-compile-") as name:
        folder = Path(name)
        write_dataset(folder / "data", ROWS, first_scene=50_000, corrupt={})
        for subject in subjects(folder, rounds):
            began = time.monotonic()
            measured = measure(spec_of(subject, folder), subject.options, lambda step: print("  ", *step, flush=True))
            found = verdict(measured)
            sections += section(subject, measured, found, time.monotonic() - began)
            figures += figures_of(subject, measured, found)
            PAGE.write_text("\n".join([*HEAD, *sections]), encoding="utf-8")
    return figures


def subjects(folder: Path, rounds: int) -> list[Subject]:
    """The demo's last checkpoint, and a tower with random weights."""
    tiny = list(model_dirs(folder / "models").values())[-1]
    many = Options(rounds=max(6, rounds), warmups=2, processes=4, most=7, sample=48, answers=3, rows=PLANNED)
    # What differs between processes decides here, and an interval over two of them (one degree of freedom) is six times
    # as wide as one over five; the first fills the cache and is not counted.
    few = Options(rounds=max(4, rounds - 1), warmups=1, processes=6, most=6, sample=24, answers=0, rows=PLANNED)
    return [
        Subject("The tiny Qwen3-VL", tiny, 16, 20, many),
        Subject(f"A random tower, {DEPTH} blocks of {HIDDEN}", write_tower(folder / "tower"), 1, 4, few),
    ]


def write_tower(folder: Path) -> Path:
    """A model directory: the tiny Qwen3-VL around an encoder of real size, with random weights.

    Its mergers are of two kinds: the norm of the last is over `HIDDEN` columns, that of the others over four times
    as many.
    """
    write_shared_files(folder)
    config = model_config()
    vision = config.vision_config
    vision.depth, vision.hidden_size, vision.num_heads, vision.intermediate_size = DEPTH, HIDDEN, 16, 4 * HIDDEN
    vision.deepstack_visual_indexes, vision.initializer_range = [5, 11, 17], 0.02
    torch.manual_seed(0)
    save_weights(Qwen3VLForConditionalGeneration(config), folder / WEIGHTS_FILE)
    config.dtype = torch.bfloat16
    (folder / "config.json").write_text(json.dumps(config.to_diff_dict(), default=str), encoding="utf-8")
    return folder


def spec_of(subject: Subject, folder: Path) -> RunSpec:
    """A run over the demo's scenes."""
    columns = {"images": ["frames"], "target": "target"}
    return build_spec(
        {
            "run_dir": str(folder / "run"),
            "source": {"kind": "mds", "path": str(folder / "data"), "columns": columns},
            "engine": {
                "kind": "transformers",
                "checkpoints": [str(subject.model)],
                "batch_size": subject.batch,
                "dtype": "float32",
                "env": {"OMP_NUM_THREADS": "1"},
            },
            "task": {"kind": "driving"},
            "sampling": {"max_tokens": subject.max_tokens},
        }
    )


HEAD = [
    "# Compiling the vision encoder",
    "",
    "Written by `make bench ONLY=compile`, never by hand. What the words mean: `docs/compile.md`. A unit is one batch",
    "of rows; intervals are at 95 %, over processes and rounds, and allow for a second look at the figures. What is",
    f"judged is a run of {PLANNED:,} rows. The language model behind the tower is next to nothing, so the tower is",
    "timed alone.",
    "",
]


def section(subject: Subject, measured: Measured, found: Verdict, took: float) -> list[str]:
    """What is said of one subject."""
    about = measured.subject
    known = ("processor", "threads", "dtype", "torch", "transformers", "backend", "processes", "rounds")
    shapes = "; ".join(f"{s.name} ({s.patches} patches, {100 * s.share:.0f} % of the rows)" for s in measured.shapes)
    lines = [
        f"## {subject.title}",
        "",
        ", ".join(f"{name} {about.get(name)}" for name in known) + f"; {took / 60:.0f} minutes.",
        f"Units: {shapes}.",
        "",
        f"**{found.sentence}**",
        "",
        *table(
            ["target", "verdict", "eager", "compiled", "saved a unit", "speed", "pays after (cold)", "(warm)", "why"],
            [finding(one) for one in found.findings],
        ),
        *table(
            ["target", "process", "cache", "seconds", "graphs", "hits", "misses", "breaks", "recompiled", "memory"],
            [compilation(one) for one in measured.compilations],
        ),
        *dispatched(measured),
    ]
    for arm, rest in found.unaccounted.items():
        lines.append(f"- in no target: {seconds(rest)} of the encoder, {arm}")
    if found.amdahl is not None:
        lines.append(f"- end to end: {found.amdahl.reason}")
    lines += [*agreed(measured), *(f"- {line}" for line in (*found.flags, *measured.notes)), ""]
    return lines


def table(columns: list[str], lines: list[list[str]]) -> list[str]:
    rule = "| " + " | ".join("---" for _ in columns) + " |"
    return [f"| {' | '.join(cells)} |" for cells in [columns]] + [
        rule,
        *(f"| {' | '.join(row)} |" for row in lines),
        "",
    ]


def finding(one: Finding) -> list[str]:
    between = ["-" if value is None else seconds_between(value) for value in (one.eager, one.compiled, one.saved)]
    speed = "-" if one.speedup is None else times_between(one.speedup)
    pays = [rows_told(one.break_even[cache]) if cache in one.break_even else "-" for cache in ("cold", "warm")]
    return [one.target, f"**{one.decision}**", *between, speed, *pays, one.reason.replace("|", "/")]


def compilation(one: Compilation) -> list[str]:
    memory = "-" if one.memory is None else f"{one.memory / 2**20:.0f} MiB"
    counts = [one.graphs, one.cache_hits, one.cache_misses, len(one.breaks), len(one.recompiles)]
    return [one.target, str(one.process), one.cache, f"{one.seconds:.1f}", *map(str, counts), memory]


def dispatched(measured: Measured) -> list[str]:
    """Overhead of a call, and operators of each target in both arms."""
    if not measured.dispatches:
        return []
    counted = [(one.target, one.kernels) for one in measured.dispatches if one.kernels is not None]
    return [
        f"- a compiled call costs {seconds(measured.dispatches[0].seconds)} beyond its work",
        *(f"- operators of one unit of {name}: {', '.join(f'{k} {v}' for k, v in by.items())}" for name, by in counted),
    ]


def agreed(measured: Measured) -> list[str]:
    """How the outputs compare, by target: the worst of all shapes and levels."""
    lines = []
    for target in dict.fromkeys(one.target for one in measured.agreements):
        mine = [one for one in measured.agreements if one.target == target]
        failed = [one for one in mine if not one.passed]
        worst = max(mine, key=lambda one: one.largest or 0.0)
        verdict_ = f"{len(failed)} of {len(mine)} comparisons fail" if failed else f"all {len(mine)} comparisons pass"
        lines.append(
            f"- outputs of {target}: {verdict_}; at worst {100 * min(o.bitwise for o in mine):.0f} % bitwise equal, "
            f"largest difference {worst.largest:.2g} ({worst.level})"
        )
    return [*lines, *(f"- answers: {len(one.changed)} of {one.probes} change" for one in measured.answers)]


def figures_of(subject: Subject, measured: Measured, found: Verdict) -> list[dict[str, Any]]:
    """Speed-ups and compile seconds, for the common page."""
    rounds = subject.options.rounds * subject.options.processes
    figures = []
    for one in found.findings:
        if one.speedup is not None:
            low, high = one.speedup.low, one.speedup.high
            figures.append(
                {
                    "name": f"{subject.title}: {one.target}, eager over compiled ({one.decision})",
                    "figure": one.speedup.value,
                    "unit": "times",
                    "ratio_to": "compiled",
                    "rounds": rounds,
                    "spread": None if low is None or high is None else [low, high],
                }
            )
    for cache in ("cold", "warm"):
        by_process: dict[int, float] = {}
        for spent in measured.compilations:
            if spent.cache == cache:
                by_process[spent.process] = by_process.get(spent.process, 0.0) + spent.seconds
        if by_process:
            values = list(by_process.values())
            figures.append(
                {
                    "name": f"{subject.title}: compiling all targets, {cache} cache",
                    "figure": sum(values) / len(values),
                    "unit": "s",
                    "rounds": len(values),
                    "spread": [min(values), max(values)],
                }
            )
    return figures
