"""``proctor trace occupancy``: of every kernel of a trace, or of a launch given by its figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from proctor.cli.output import counted, json_line, stdout, table
from proctor.cli.run import Json
from proctor.rows import UserError
from proctor.trace.names.normal import short_name

if TYPE_CHECKING:
    from proctor.trace.launches.kernel_occupancy import HeldBack, OccupancyOfTrace
    from proctor.trace.launches.occupancy import Limits, Occupancy

_NAME_WIDTH = 48
REPORTED_IN_WORDS = (
    'reported: what the profiler calls "est. achieved occupancy"; it counts that a small grid fills no SM, as '
    '"with grid" does here'
)


def occupancy(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A trace; none to calculate one launch.")
    ] = None,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Threads a block.")] = None,
    registers: Annotated[int, typer.Option("--registers", min=0, help="Registers a thread.")] = 0,
    shared: Annotated[int, typer.Option("--shared", min=0, help="Bytes of shared memory a block, in all.")] = 0,
    blocks: Annotated[int | None, typer.Option("--blocks", min=1, help="Blocks of the grid: how many waves?")] = None,
    cluster: Annotated[int, typer.Option("--cluster", min=1, help="Blocks of a cluster.")] = 1,
    gpu: Annotated[str | None, typer.Option("--gpu", help="The GPU, e.g. H100, where the trace does not say.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many kernels to show.")] = 30,
    json: Json = False,
) -> None:
    """Show theoretical occupancy: which kernels are held back, by what, and how many waves a launch takes.

    Of a FILE: every kernel, weighted by time. Without one: of the launch that the options describe, on the GPU named.
    """
    if (file is None) == (threads is None):
        raise UserError("give a trace, or a launch by --threads and --gpu", fix="one of the two")
    if file is not None:
        _of_trace(file, gpu, limit, json=json)
    elif gpu is None:
        raise UserError("the launch needs a GPU", fix="name it, e.g. --gpu H100")
    elif threads is not None:
        _of_launch(gpu, threads, registers, shared, blocks, cluster, json=json)


def _of_trace(file: Path, gpu: str | None, limit: int, *, json: bool) -> None:
    from proctor.cli.trace.heading import opened
    from proctor.trace.launches.kernel_occupancy import occupancy_of_trace

    with opened(file) as trace:
        found = occupancy_of_trace(trace, gpu=gpu)
    if json:
        for each in found.kernels[:limit]:
            json_line("kernel", **msgspec.to_builtins(each))
        whole = msgspec.to_builtins(found)
        json_line("occupancy", **{**whole, "kernels": len(found.kernels)})
        return
    for limits in found.gpus:
        stdout.say(limits_in_words(limits))
    reported = any(each.reported_occupancy is not None for each in found.kernels)
    columns = [
        "id",
        "kernel",
        "ms",
        "share",
        "launches",
        "configs",
        "occupancy",
        "limited by",
        "in use",
        "with grid",
        "reported",
    ]
    width = len(columns) if reported else -2
    stdout.print(table(columns[:width], [_row(each)[:width] for each in found.kernels[:limit]]))
    _say_whole(found, limit)


def _row(each: HeldBack) -> tuple[object, ...]:
    full = each.occupancy == 1.0
    return (
        None if each.kernel is None else f"#{each.kernel}",
        short_name(each.name, _NAME_WIDTH),
        f"{each.total / 1e6:,.3f}",
        f"{each.share:.1%}",
        each.launches,
        each.configurations,
        percent(each.occupancy),
        "- (full)" if full else ", ".join(each.limiters) or "-",
        percent(each.efficiency),
        percent(each.filled),
        None
        if each.reported_occupancy is None
        else f"{each.reported_occupancy:.0f}%{' (!)' * bool(each.reported_zero)}",
    )


def _say_whole(found: OccupancyOfTrace, limit: int) -> None:
    if len(found.kernels) > limit:
        stdout.say(f"and {counted(len(found.kernels) - limit, 'other kernel')}: --limit shows more")
    if found.occupancy is not None:
        by = ", ".join(f"{name} {time / found.known:.0%}" for name, time in found.limiters.items())
        stdout.say(
            f"theoretical occupancy over {found.known / 1e6:,.3f} ms of kernels: {percent(found.occupancy)}; "
            f"of this time limited by {by} (launches with two limiters count for both)"
        )
    stdout.say(
        "in use: of the places for blocks over all waves, if blocks take equally long and nothing else runs; low where "
        "the grid is small or its last wave is"
    )
    if any(each.reported_occupancy is not None for each in found.kernels):
        stdout.say(REPORTED_IN_WORDS)
    for remark in found.remarks:
        stdout.say(f"note: {remark}")


def _of_launch(
    gpu: str, threads: int, registers: int, shared: int, blocks: int | None, cluster: int, *, json: bool
) -> None:
    from proctor.trace.launches.gpu_limits import named_limits
    from proctor.trace.launches.occupancy import occupancy as occupancy_of
    from proctor.trace.launches.waves import waves, waves_in_words

    limits = named_limits(gpu)
    held = occupancy_of(limits, threads=threads, registers=registers, shared=shared)
    count = None if blocks is None else waves(limits, held, blocks=blocks, cluster=cluster)
    if json:
        asked = {"threads": threads, "registers": registers, "shared": shared, "blocks": blocks, "cluster": cluster}
        json_line("launch", asked=asked, limits=limits, occupancy=held, waves=count)
        return
    stdout.say(limits_in_words(limits))
    if not held.blocks:
        stdout.say(f"does not fit: {held.why}")
        return
    stdout.print(
        f"[bold]{percent(held.share)}[/]: {counted(held.blocks, 'block')} an SM, {held.warps} of {limits.warps} warps, "
        f"limited by {', '.join(held.limiters)}"
    )
    stdout.print(
        table(
            ["resource", "an SM has", "a block takes", "blocks it allows"],
            _resources(limits, held, threads, registers, shared),
        )
    )
    _say_next(limits, held, threads)
    if count is not None:
        stdout.say(f"{waves_in_words(count)}; {percent(count.efficiency)} of the places in use")
    elif blocks is not None:
        stdout.say("waves: unknown, since products of that name differ in their number of SMs")


def _resources(limits: Limits, held: Occupancy, threads: int, registers: int, shared: int) -> list[tuple[object, ...]]:
    from proctor.trace.launches.occupancy import BLOCKS, REGISTERS, SHARED, WARPS, registers_of_warp, shared_of_block

    warps = -(-threads // limits.warp)
    taken = {
        WARPS: (limits.warps, warps),
        BLOCKS: (limits.blocks, 1),
        REGISTERS: (limits.registers, registers_of_warp(limits, registers) * warps),
        SHARED: (limits.shared, shared_of_block(limits, shared)),
    }
    return [(name, *taken[name], allowed) for name, allowed in held.allowed.items()]


def _say_next(limits: Limits, held: Occupancy, threads: int) -> None:
    from proctor.trace.launches.occupancy import room_for

    room = room_for(limits, blocks=held.blocks + 1, threads=threads)
    if room is not None and room[0] and room[1] >= 0:
        stdout.say(
            f"for {held.blocks + 1} blocks an SM: at most {room[0]} registers a thread and {room[1]:,} bytes of shared "
            "memory a block"
        )


def limits_in_words(limits: Limits) -> str:
    """``compute capability 9.0 (TARGET_INFO_GPU), 132 SMs (TARGET_INFO_GPU)``."""
    unconfirmed = "" if limits.confirmed else ", not confirmed by any trace"
    sms = "SMs unknown" if limits.sm_count is None else f"{limits.sm_count} SMs ({limits.sm_origin})"
    return f"GPU: compute capability {limits.compute[0]}.{limits.compute[1]} ({limits.origin}{unconfirmed}), {sms}"


def percent(share: float | None) -> str | None:
    """``18.8%``."""
    return None if share is None else f"{share:.1%}"
