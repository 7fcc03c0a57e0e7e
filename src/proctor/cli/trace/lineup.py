"""``proctor trace lineup`` and ``risks``: what kind of work the kernels of a trace do, and what they put at risk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from proctor.cli.output import counted, json_line, stdout, table
from proctor.cli.run import Json
from proctor.cli.trace.heading import TraceFile, opened
from proctor.trace.names import short_name

if TYPE_CHECKING:
    from proctor.trace.names.listing import Kinds, RiskTable

Limit = Annotated[int, typer.Option("--limit", min=1, help="How many rows to show.")]
RulesFile = Annotated[
    Path | None,
    typer.Option("--rules", metavar="RULES", help="TOML file with rules of your own, tried before the built-in ones."),
]


def lineup(
    file: TraceFile,
    rules: RulesFile = None,
    limit: Limit = 40,
    json: Json = False,
) -> None:
    """Show what kind of work the GPU did: time by category, and the rule that placed each kernel.

    Times are added up: kernels that ran side by side count twice.
    """
    from proctor.trace.launches.kernel_choice import ids_of
    from proctor.trace.names import line_up
    from proctor.trace.names.listing import kinds_of

    used = line_up(rules)
    with opened(file) as trace:
        kinds = kinds_of(trace, used)
        ids = ids_of(trace, [rule.kernels[0] for line in kinds.lines for rule in line.rules])
    if json:
        for line in kinds.lines:
            json_line("category", **msgspec.to_builtins(line))
        json_line("lineup", launches=kinds.launches, total=kinds.total, placed=kinds.placed)
        return
    _show_kinds(kinds, ids, limit)


def _show_kinds(kinds: Kinds, ids: Mapping[str, int], limit: int) -> None:
    rows = [
        (line.category, f"{line.total / 1e6:,.3f}", f"{line.share:.1%}", line.launches, line.meaning)
        for line in kinds.lines
    ]
    stdout.print(table(["category", "ms", "share", "launches", "what it is"], rows))
    by_rule = [
        (
            line.category,
            rule.rule or "-",
            f"{rule.total / 1e6:,.3f}",
            rule.launches,
            short_name(rule.kernels[0], 28) + (f" and {len(rule.kernels) - 1} more" if len(rule.kernels) > 1 else ""),
            _id(ids, rule.kernels[0]),
            rule.why,
        )
        for line in kinds.lines
        for rule in line.rules
    ]
    stdout.print(table(["category", "rule", "ms", "launches", "kernels", "id", "why"], by_rule[:limit]))
    if len(by_rule) > limit:
        stdout.say(f"and {counted(len(by_rule) - limit, 'other rule')}: --limit shows more")
    launches = "1 launch" if kinds.launches == 1 else f"{kinds.launches:,} launches"
    stdout.say(f"{kinds.placed:.1%} of {kinds.total / 1e6:,.3f} ms in {launches} is placed")


def risks(file: TraceFile, limit: Limit = 40, json: Json = False) -> None:
    """List determinism risks of the kernels of a trace: run to run, and across batches. Risks, never verdicts.

    Run to run: the same bits on every run, with the same GPU, software and shapes. Batch-invariant: a row's bits do
    not depend on what else is in the batch.
    """
    from proctor.trace.launches.kernel_choice import ids_of
    from proctor.trace.names.listing import risks_in

    with opened(file) as trace:
        found = risks_in(trace)
        ids = ids_of(trace, [line.kernel for line in found.lines[:limit]])
    if json:
        for line in found.lines:
            json_line("risk", **msgspec.to_builtins(line))
        json_line(
            "risks",
            total=found.total,
            run_to_run=found.run_to_run,
            batch_invariant=found.batch_invariant,
            clues=found.clues,
            summary=found.summary(),
        )
        return
    _show_risks(found, ids, limit)


def _show_risks(found: RiskTable, ids: Mapping[str, int], limit: int) -> None:
    from proctor.trace.names.listing import reason_of

    rows = [
        (
            _id(ids, line.kernel),
            short_name(line.kernel, 27),
            f"{line.total / 1e6:,.3f}",
            f"{line.share:.1%}",
            line.risks.run_to_run,
            line.risks.batch_invariant,
            line.risks.clue or "-",
            reason_of(line.risks),
        )
        for line in found.lines[:limit]
    ]
    columns = ["id", "kernel", "ms", "share", "run to run", "batch-invariant", "clue", "reason"]
    stdout.print(table(columns, rows))
    if len(found.lines) > limit:
        stdout.say(f"and {counted(len(found.lines) - limit, 'other kernel')}: --limit shows more")
    for clue, share in found.clues.items():
        stdout.say(f"{clue}: {share:.1%} of kernel time")
    stdout.say(found.summary())


def _id(ids: Mapping[str, int], name: str) -> str | None:
    return f"#{ids[name]}" if name in ids else None
