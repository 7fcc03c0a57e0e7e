"""How what watching a kernel found is put into words and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table

from proctor.cli.output import counted, table
from proctor.cli.trace.occupancy import REPORTED_IN_WORDS, limits_in_words, percent
from proctor.trace.launches.spread import OUTLIERS_IN_WORDS, Drift, Outliers, Spread
from proctor.trace.launches.stakeout_model import Configuration, Launch, StakeOut
from proctor.trace.launches.waves import waves_in_words
from proctor.trace.names.normal import short_name

_NAME_WIDTH, _RANGE_WIDTH, _KERNELS_SHOWN = 120, 60, 8


def head(found: StakeOut) -> Iterator[str]:
    """What is watched, how much of the trace it is, and on which GPUs."""
    for kernel in found.kernels[:_KERNELS_SHOWN]:
        yield f"#{kernel.id} {short_name(kernel.name, _NAME_WIDTH)}"
    if len(found.kernels) > _KERNELS_SHOWN:
        yield f"and {counted(len(found.kernels) - _KERNELS_SHOWN, 'other kernel')}"
    yield (
        f"{found.launches:,} {'launch' if found.launches == 1 else 'launches'}, {found.total / 1e6:,.3f} ms, "
        f"{found.share:.1%} of the time of all kernels; from {(found.first - found.origin) / 1e6:,.3f} to "
        f"{(found.last - found.origin) / 1e6:,.3f} ms after the trace's first event"
    )
    for limits in found.gpus:
        yield limits_in_words(limits)


def asked(configurations: Sequence[Configuration]) -> Table:
    """What was asked of the GPU, and how much of an SM that fills."""
    columns = ["#", "launches", "grid", "block", "cluster", "regs", "shared B", "local B", "occupancy", "limited by"]
    reported = any(each.reported_occupancy is not None for each in configurations)
    rows = [
        (
            each.number, each.launches, _three(each.grid), _three(each.block), _cluster(each), each.registers,
            _shared(each), each.local_per_thread, _occupancy(each), _limiters(each),
            *(_reported(each) if reported else ()),
        )
        for each in configurations
    ]  # fmt: skip
    return table([*columns, *(["with grid", "reported"] if reported else [])], rows)


def took(configurations: Sequence[Configuration], total: int) -> Table:
    """How long launches took, and how they were launched."""
    columns = ["#", "ms", "share", "median us", "IQR", "p95", "max", "slow", "fast", "drift", "latency us", "queued us"]
    rows = [
        (
            each.number, f"{each.times.total / 1e6:,.3f}", percent(each.times.total / total if total else 0.0),
            _us(each.times.median), percent(each.times.iqr_share), _us(each.times.p95), _us(each.times.max),
            *_outliers(each.outliers), _drift(each.drift), _median(each.latency), _median(each.queued),
        )
        for each in configurations
    ]  # fmt: skip
    return table(columns, rows)


def findings(found: StakeOut, shown: Sequence[Configuration]) -> Iterator[str]:
    """Waves, drifts, callers and ranges, a line each; and what the columns mean."""
    for each in shown:
        if each.waves is not None:
            yield f"#{each.number}: {waves_in_words(each.waves)}"
        if each.occupancy is not None and each.occupancy.why:
            yield f"#{each.number}: does not fit, by these limits: {each.occupancy.why}"
        if each.drift is not None and each.drift.real:
            yield f"#{each.number}: {_drift_in_words(each.drift)}"
        yield f"#{each.number}: {_origin(each)}"
    lost = sum(each.outliers.lost for each in found.configurations if each.outliers is not None)
    yield f"outliers (slow, fast): {OUTLIERS_IN_WORDS}; the slow ones lost {lost / 1e6:,.3f} ms"
    if any(each.reported_occupancy is not None for each in shown):
        yield REPORTED_IN_WORDS
    yield "latency: from the API call to the start of the kernel; queued: from the call's return; both medians"


LAUNCH_COLUMNS = "at ms | duration us | x median | # | device | stream | pid | call | latency us | queued us | range"


def launch_line(launch: Launch) -> str:
    """One launch, for `LAUNCH_COLUMNS`."""
    return " | ".join("-" if cell is None else str(cell) for cell in _cells(launch))


def launch_table(launches: Sequence[Launch], title: str) -> Table:
    """Some launches under each other."""
    return table(LAUNCH_COLUMNS.split(" | "), [_cells(launch) for launch in launches], title=title)


def _cells(launch: Launch) -> tuple[object, ...]:
    return (
        f"{launch.at / 1e6:,.6f}", _us(launch.duration), f"{launch.of_median:.3f}", launch.configuration,
        launch.device, launch.stream, None if launch.pid is None else str(launch.pid), launch.call or "(no call)",
        _us(launch.latency), _us(launch.queued), None if launch.range is None else _innermost(launch.range),
    )  # fmt: skip


def _origin(each: Configuration) -> str:
    by = (
        ", ".join(f"{call.name} ({call.launches:,})" for call in each.calls[:3]) or "calls that the trace does not have"
    )
    without = f", {each.without_call:,} without a call" if each.without_call and each.calls else ""
    places = len(each.places) + each.more_places
    where = f"on {counted(places, 'stream')}" + _unequal(each)
    within = ""
    if each.ranges:
        within = "; within " + ", ".join(f"{_innermost(r.name)} ({r.launches:,})" for r in each.ranges[:3])
    graph = ", as nodes of a CUDA graph" if each.in_graph else ""
    return f"launched by {by}{without}{graph} {where}{within}"


def _unequal(each: Configuration) -> str:
    """Streams with many launches, of which one takes longer than the other."""
    medians = [place.median for place in each.places if place.launches > 1]
    if len(medians) < 2 or not min(medians):
        return ""
    return f" (medians from {_us(min(medians))} to {_us(max(medians))} us)"


def _drift(found: Drift | None) -> str | None:
    if found is None:
        return None
    return f"{found.share:+.1%}" if found.real else "none"


def _drift_in_words(found: Drift) -> str:
    return (
        f"drifts by {found.share:+.1%} ({_us(abs(found.change))} us) from the first to the last launch, more than the "
        f"noise (95% interval {found.low:+.1%} to {found.high:+.1%})"
    )


def _outliers(found: Outliers | None) -> tuple[int | None, int | None]:
    return (None, None) if found is None else (found.slow, found.fast)


def _median(found: Spread | None) -> str | None:
    return None if found is None else _us(found.median)


def _occupancy(each: Configuration) -> str | None:
    if each.occupancy is None:
        return None
    as_run = f" (as run {percent(each.occupancy_executed.share)})" if each.occupancy_executed else ""
    most = "<=" if each.occupancy.unknown else ""
    return f"{most}{percent(each.occupancy.share)}{as_run}"


def _reported(each: Configuration) -> tuple[str | None, str | None]:
    grid = None if each.waves is None else percent(each.waves.filled)
    return grid, None if each.reported_occupancy is None else f"{each.reported_occupancy:.0f}%"


def _limiters(each: Configuration) -> str | None:
    if each.occupancy is None:
        return None
    return "- (full)" if each.occupancy.share == 1 else ", ".join(each.occupancy.limiters) or "-"


def _shared(each: Configuration) -> str | None:
    if each.static_shared is None or each.dynamic_shared is None:
        return None
    parts = f" ({each.static_shared:,} static)" if each.static_shared else ""
    return f"{each.static_shared + each.dynamic_shared:,}{parts}"


def _cluster(each: Configuration) -> str | None:
    return _three(each.cluster) if any(each.cluster) else None


def _three(sizes: Sequence[int | None]) -> str:
    return "x".join("?" if size is None else str(size) for size in sizes)


def _us(ns: float | None) -> str | None:
    return None if ns is None else f"{ns / 1e3:,.2f}"


def _innermost(path: str) -> str:
    """The end of a path of ranges: that is what is closest to the launch."""
    return path if len(path) <= _RANGE_WIDTH else "…" + path[-_RANGE_WIDTH + 1 :]
