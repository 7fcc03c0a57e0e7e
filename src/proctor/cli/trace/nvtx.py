"""``proctor trace nvtx``: ranges, and what they made the GPU do."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from proctor.cli.output import counted, json_line, stdout, table
from proctor.cli.run import Json
from proctor.cli.trace.heading import TraceFile, opened

if TYPE_CHECKING:
    from proctor.trace.nvtx.projection import By, Projection, RangeFigures, Share
    from proctor.trace.nvtx.ranks import AcrossRanks, Ranks

_NAME_WIDTH = 60
_PIDS = 4


class View(StrEnum):
    """How ranges are told apart."""

    NAME = "name"
    PATH = "path"
    RANK = "rank"


def nvtx(
    file: TraceFile,
    by: Annotated[View, typer.Option("--by", help="Ranges by name, by nesting, or by name on each rank.")] = View.NAME,
    name: Annotated[str | None, typer.Option("--name", help="Only ranges whose name or path contains this.")] = None,
    domain: Annotated[
        str | None, typer.Option("--domain", help="Only ranges of this NVTX domain or PyTorch category.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many ranges to show.")] = 30,
    json: Json = False,
) -> None:
    """Show NVTX (and PyTorch) ranges with the GPU work that was launched within them.

    A launch belongs to the ranges open on its thread when its API call begins. Busy time is a union of intervals; what
    no range covers is shown too. `--by rank` sets the same range side by side over the processes of the trace.
    """

    with opened(file) as trace:
        if by is View.RANK:
            from proctor.trace.nvtx.ranks import by_rank

            ranks = by_rank(trace)
            _print_ranks(ranks, [each for each in ranks.ranges if _wanted(each, name, domain)][:limit], json=json)
            return
        from proctor.trace.nvtx.projection import project
        from proctor.trace.timeline.timeline import origin

        how: By = "path" if by is View.PATH else "name"
        found = project(trace, by=how)
        zero = origin(trace)
    chosen = [each for each in found.ranges if _wanted(each, name, domain)]
    if json:
        _as_json(found, chosen, limit, zero)
    else:
        _show(found, chosen, limit)


def _wanted(each: RangeFigures | AcrossRanks, name: str | None, domain: str | None) -> bool:
    return (name is None or name.casefold() in each.name.casefold()) and (domain is None or each.domain == domain)


def _as_json(found: Projection, chosen: list[RangeFigures], limit: int, zero: int) -> None:
    for each in chosen[:limit]:
        json_line("range", **msgspec.to_builtins(each))
    cover = {part: msgspec.to_builtins(getattr(found, part)) for part in ("total", "outside", "unlaunched")}
    json_line("projection", by=found.by, ranges=len(chosen), origin_ns=zero, **cover)


def _show(found: Projection, chosen: list[RangeFigures], limit: int) -> None:
    ranges = _together(chosen)
    shown = ranges[:limit]
    columns = ["range", "domain", "pid", "count", "CPU ms", "launches", "GPU ops", "busy ms", "sum ms", "span ms"]
    stdout.print(table(columns, [_row(ranks) for ranks in shown]))
    if any(len(ranks) > 1 for ranks in shown):
        stdout.say(
            "with several pids: their figures added up, and the longest of their spans (--by rank: side by side)"
        )
    for each in (each for ranks in shown for each in ranks):
        if each.remark:
            stdout.say(f"{_short(each.name)} (pid {each.pid}): {each.remark}")
        if each.unended:
            stdout.say(
                f"{_short(each.name)} (pid {each.pid}): {each.unended:,} of {each.count:,} never end in this trace"
            )
    if len(ranges) > limit:
        stdout.say(f"{counted(len(ranges) - limit, 'more range')}: --limit")
    stdout.say(
        f"on the GPU: {_share(found.total)}; launched outside of all ranges: {_share(found.outside)}; "
        f"without a launching call in the trace: {_share(found.unlaunched)}"
    )


def _together(chosen: list[RangeFigures]) -> list[list[RangeFigures]]:
    """The ranges of one name and domain, whatever their process, in the order of the first of them."""
    found: dict[tuple[str, str], list[RangeFigures]] = {}
    for each in chosen:
        found.setdefault((each.name, each.domain), []).append(each)
    return list(found.values())


def _row(ranks: list[RangeFigures]) -> tuple[object, ...]:
    def total(figure: str) -> int:
        return sum(getattr(each, figure) for each in ranks)

    spans = [span for each in ranks if (span := _span(each)) is not None]
    pids = [str(each.pid) for each in ranks[:_PIDS]] + ["…"] * (len(ranks) > _PIDS)
    return (
        _short(ranks[0].name), ranks[0].domain, ", ".join(pids), total("count"), _ms(total("cpu_ns")),
        total("launches"), total("operations"), _ms(total("gpu_busy_ns")), _ms(total("gpu_sum_ns")),
        _ms(max(spans, default=None)),
    )  # fmt: skip


def _print_ranks(ranks: Ranks, chosen: list[AcrossRanks], *, json: bool) -> None:
    if json:
        for rank in ranks.ranks:
            json_line("rank", **msgspec.to_builtins(rank))
        for each in chosen:
            json_line("range", **msgspec.to_builtins(each))
        return
    heads = [f"pid {rank.pid}{_on(rank.devices)} ms" for rank in ranks.ranks]
    rows = [
        (
            _short(each.name),
            "GPU busy" if each.measure == "gpu_busy_ns" else "CPU",
            *("-" if figures is None else _ms(getattr(figures, each.measure)) for figures in each.ranks),
            "-" if each.slowest is None else str(each.slowest),
            _ms(each.skew_ns),
            f"{each.skew:.1%}",
            "yes" if each.even_counts else "NO",
        )
        for each in chosen
    ]
    columns = ["range", "time", *heads, "slowest pid", "skew ms", "skew", "same count"]
    stdout.print(table(columns, rows))


def _on(devices: tuple[int, ...]) -> str:
    return f" (GPU {', '.join(map(str, devices))})" if devices else ""


def _span(each: RangeFigures) -> int | None:
    return None if each.gpu_first is None or each.gpu_last is None else each.gpu_last - each.gpu_first


def _ms(nanoseconds: int | None) -> str:
    return "-" if nanoseconds is None else f"{nanoseconds / 1e6:,.3f}"


def _share(share: Share) -> str:
    return f"{share.operations:,} operations, {_ms(share.busy_ns)} ms busy"


def _short(name: str) -> str:
    return name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH // 2 - 1]} … {name[-(_NAME_WIDTH // 2 - 2) :]}"
