"""Times, sizes and changes of traces, as a person reads them."""

from __future__ import annotations

from proctor.view.formats import NOTHING

_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"))
_SIZES = ("B", "kB", "MB", "GB", "TB")


def span(ns: float | None, sign: str = "") -> str:
    """A length of time: ``512 ns``, ``12.34 µs``, ``4.493 ms``; with ``+`` as `sign` a change."""
    if ns is None:
        return NOTHING
    for unit, word in _TIMES:
        if abs(ns) >= unit:
            return f"{ns / unit:{sign},.{4 - min(3, len(str(int(abs(ns) / unit))))}f} {word}"
    return f"{ns:{sign},.0f} ns"


def instant(ns: int) -> str:
    """A time after the first event, to the nanosecond: ``290.277120 ms``."""
    return f"{ns / 1e6:,.6f} ms"


def typed(ns: int) -> str:
    """The same as a person may type it: ``290.27712ms``."""
    text = f"{ns // 10**6}.{ns % 10**6:06}".rstrip("0").rstrip(".")
    return f"{text}ms"


def milliseconds(ns: float | None, sign: str = "") -> str:
    """``12.345``, of a column in ms."""
    return NOTHING if ns is None else f"{ns / 1e6:{sign},.3f}"


def size(count: float | None, sign: str = "") -> str:
    """``272 B``, ``8.05 GB``."""
    if count is None:
        return NOTHING
    scaled, at = float(count), 0
    while abs(scaled) >= 999.5 and at < len(_SIZES) - 1:
        scaled, at = scaled / 1000, at + 1
    digits = 0 if not at or abs(scaled) >= 99.95 else 1 if abs(scaled) >= 9.995 else 2
    return f"{scaled:{sign},.{digits}f} {_SIZES[at]}"


def figure(value: float | None, unit: str, sign: str = "") -> str:
    """A figure of a diff with its unit."""
    if value is None:
        return NOTHING
    if unit == "ns":
        return f"{milliseconds(value, sign)} ms"
    if unit == "bytes":
        return size(value, sign)
    return f"{value:{sign},.0f}" if value == int(value) else f"{value:{sign},.1f}"


def change(a: float | None, b: float | None) -> str:
    """``+5.0 %``, ``x 12`` of what became a multiple, ``new`` of what was not there."""
    if a is None or b is None or (not a and not b):
        return NOTHING
    if not a:
        return "new"
    return f"x {b / a:,.0f}" if b / a >= 10 else f"{100 * (b / a - 1):+.1f} %"
