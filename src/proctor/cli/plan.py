"""``proctor plan``: what a run would do and what it takes, without doing it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import yaml

from proctor.cli.output import counted, duration, escaped, json_line, stderr, stdout, table
from proctor.cli.run import Json, Only, Set, SpecFile, listed
from proctor.spec import RunSpec, load_spec

if TYPE_CHECKING:
    from proctor.capacity import Cluster
    from proctor.capacity import Plan as CapacityPlan
    from proctor.capacity.throughput import Throughput
    from proctor.runner.plan import AuditPlan, Plan

_VERDICTS = {"fits": "green", "fits with these changes": "yellow", "refused": "red", "unknown": "yellow"}


def plan(
    spec: SpecFile,
    set_: Set = None,
    only: Only = None,
    cluster: Annotated[
        Path | None,
        typer.Option("--cluster", metavar="NODES", help="YAML file that describes the nodes. Default: what is there."),
    ] = None,
    engine_rate: Annotated[
        float | None,
        typer.Option("--engine-rows-per-second", min=1e-6, help="Rows a second of one engine, measured."),
    ] = None,
    engine_memory: Annotated[
        float | None, typer.Option("--engine-memory-mb", min=1, help="Memory of one engine's process, in megabytes.")
    ] = None,
    engine_start: Annotated[
        float | None,
        typer.Option("--engine-start-seconds", min=0, help="Seconds that an engine takes to start, measured."),
    ] = None,
    engine_swap: Annotated[
        float | None,
        typer.Option("--engine-swap-seconds", min=0, help="Seconds that a swap of checkpoints takes, measured."),
    ] = None,
    why: Annotated[bool, typer.Option("--why", help="Show every number with its formula and its origin.")] = False,
    json: Json = False,
) -> None:
    """Show what a run would do and what it takes, without doing it: does it fit, and which stage limits it?

    Exit code: 0 it fits, 2 it fits with the changes shown, 3 it is refused (or nothing could be measured), 1 a mistake
    in the input.
    """
    from proctor.capacity import plan as plan_capacity
    from proctor.runner.exam import Exam
    from proctor.runner.plan import make_plan

    loaded = load_spec(spec, set_ or [])
    nodes = _nodes(loaded, cluster)
    exam = Exam.of(loaded, listed(only))
    made = make_plan(exam)
    found = plan_capacity(
        loaded,
        nodes,
        source=exam.source,
        rows=sum(made.todo.values()),
        checkpoints=sum(map(bool, made.todo.values())),
        engine_rate=engine_rate,
        engine_memory=None if engine_memory is None else engine_memory * 1e6,
        start_seconds=engine_start,
        swap_seconds=engine_swap,
    )
    if json:
        json_line("plan", **asdict(made), capacity=found.to_json())
    else:
        _show_run(loaded, made)
        _show_capacity(found, why=why)
    raise typer.Exit(found.exit_code)


def _nodes(spec: RunSpec, file: Path | None) -> Cluster:
    if file is not None:
        from proctor.capacity import load_cluster

        return load_cluster(file)
    from proctor.capacity import cluster_of

    return cluster_of(spec)


def _show_run(spec: RunSpec, made: Plan) -> None:
    for warning in made.warnings:
        stderr.print(f"[yellow]warning:[/] {escaped(warning)}", soft_wrap=True)
    some = "" if made.rows == made.source_rows else f" of {made.source_rows:,}"
    stdout.print(f"[bold]{counted(made.rows, 'row')}[/]{some} from {escaped(spec.source.path)} ({spec.source.kind})")
    stdout.print(f"{counted(made.blocks, 'block')}, {made.data_bytes / 1e6:,.1f} MB of data")
    stdout.print(
        f"{spec.engine.replicas} x {spec.engine.kind}, {spec.engine.batch_size} rows at once each; "
        f"{made.cpus:g} CPUs and {made.gpus:g} GPUs of Ray"
    )
    stdout.say(f"run directory: {spec.run_dir}")
    stdout.print(table(["checkpoint", "rows to do"], list(made.todo.items())))
    stdout.print(table(["column", "type"], list(made.columns.items())))
    stdout.print("[bold]first prompt[/]")
    stdout.say(made.preview)
    if made.audit is not None:
        stdout.say(_audit_line(made.audit))


def _audit_line(audit: AuditPlan) -> str:
    which = f"{audit.checkpoint}, not of {', '.join(audit.others)}" if audit.others else audit.checkpoint
    if audit.cost is None:
        return f"audit before the run, of {which}: it will fail, and the run go on: {audit.trouble}"
    cost = audit.cost
    return (
        f"audit before the run, of {which}: {counted(audit.rows, 'row')}, {counted(audit.arms, 'arm')}, "
        f"{counted(cost['engine_starts'], 'engine start')}, {counted(cost['requests'], 'request')}, and at most "
        f"{counted(cost['most_more_sittings'], 'further sitting')} to look for causes (`proctor audit --dry-run`)"
    )


def _show_capacity(found: CapacityPlan, *, why: bool) -> None:
    from proctor.capacity.figures import shown

    stdout.print(f"\n[bold {_VERDICTS[found.verdict]}]{found.verdict}[/]: {escaped(found.cluster.origin)}")
    for check in (check for check in found.checks if check.level != "ok"):
        level = "" if check.level == "fails" else f" {check.level}:"
        colour = "red" if check.level == "fails" else "yellow"
        text = f"[{colour}]{check.what}[/] ({escaped(check.where)}):{level} {escaped(check.formula)}"
        stdout.print(text, soft_wrap=True)
    for change in found.changes:
        stdout.say(f"  {change.key}: {change.after}    (now: {'default' if change.before is None else change.before})")
    checks = [(c.what, c.where, c.level, shown(c.need, c.unit), shown(c.have, c.unit), c.advice) for c in found.checks]
    stdout.print(table(["check", "where", "result", "needs", "has", "advice"], checks))
    for check in found.checks if why else ():
        stdout.say(f"{check.what} ({check.where}): {check.formula}")
    stdout.print(
        table(["node", "engines", "reading", "blocks", "the run", "others", "memory", "to spare"], _node_rows(found))
    )
    if found.verdict != "refused":
        _show_throughput(found)
    if why:
        figures = [(f.name, shown(f.value, f.unit), f.origin, f.formula) for f in found.figures]
        stdout.print(table(["number", "value", "origin", "formula"], figures))
    if found.verdict not in ("refused", "unknown"):
        stdout.print("[bold]for the spec[/]")
        block = {"capacity": found.capacity.model_dump(exclude_none=True)}
        stdout.say(yaml.safe_dump(block, sort_keys=False).rstrip())


def _node_rows(found: CapacityPlan) -> list[tuple[object, ...]]:
    from proctor.capacity.figures import shown

    return [
        (
            n.node if n.count == 1 else f"{n.count} x {n.node}",
            n.engines,
            n.reads,
            n.blocks,
            shown(n.run_memory, "B"),
            shown(n.used, "B"),
            shown(n.ram, "B"),
            shown(n.head_room, "B"),
        )
        for n in found.nodes
    ]


def _show_throughput(found: CapacityPlan) -> None:
    from proctor.capacity.figures import shown

    speed = found.throughput
    rows = [
        (
            s.stage,
            "-" if s.rows_per_second is None else f"{s.rows_per_second:,.0f}",
            shown(s.cpu_seconds, "s"),
            f"= {s.formula}",
        )
        for s in speed.stages
    ]
    stdout.print(table(["stage", "rows/s", "CPU a row", "from"], rows))
    if speed.limit is None or speed.rows_per_second is None or speed.hours is None:
        stdout.print("speed: unknown")
        return
    most = "at most " if speed.bound_only else ""
    stdout.say(
        f"{speed.limit} limits: {most}{speed.rows_per_second:,.0f} rows/s, {counted(found.rows, 'row')} in "
        f"{'at least ' if speed.bound_only else ''}{duration(speed.hours * 3600)} ({speed.formula})"
    )
    for line in waits(speed):
        stdout.say(line)


def waits(speed: Throughput) -> Iterator[str]:
    """What a run waits for its engines: what is in the hours, and what is not since nobody knows how long it takes."""
    from proctor.capacity.figures import shown

    course = speed.course
    kinds = (("start", course.starts, speed.start_seconds), ("swap", course.swaps, speed.swap_seconds))
    known = [f"{counted(number, kind)} of {shown(each, 's')}" for kind, number, each in kinds if number and each]
    if known:
        yield f"of these {' and '.join(known)}, one after another: {course.text}"
    unknown = {kind: counted(number, kind) for kind, number, each in kinds if number and each is None}
    if unknown and course.starts + course.swaps > 1:
        options = ", ".join(f"--engine-{kind}-seconds" for kind in unknown)
        seconds = f"of engines, one after another, whose seconds are not known ({options})"
        yield f"and {' and '.join(unknown.values())} {seconds}" + ("" if known else f": {course.text}")
