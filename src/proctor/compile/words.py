"""Figures of a bench as a person reads them."""

from __future__ import annotations

import math

from proctor.compile.model import Interval

_UNITS = ((3600.0, "h"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def seconds(value: float) -> str:
    """``26.9 h``, ``12.9 s``, ``22.3 ms``, ``7.60 µs``: three significant digits or more."""
    return _seconds(value, *_unit(value))


def seconds_between(found: Interval) -> str:
    """``22.3 ms (20.1 to 24.5)``, with the bounds in the unit of the value."""
    scale, unit = _unit(max((found.value, found.low or 0.0, found.high or 0.0), key=abs))
    if found.low is None or found.high is None:
        return _seconds(found.value, scale, unit)
    return f"{_seconds(found.value, scale, unit)} ({_digits(found.low / scale)} to {_digits(found.high / scale)})"


def verb_and_seconds(found: Interval, verbs: tuple[str, str] = ("saves", "loses")) -> str:
    """``saves 22.3 ms (20.1 to 24.5)``, and of what is negative ``loses`` with the signs turned."""
    if found.value >= 0:
        return f"{verbs[0]} {seconds_between(found)}"
    low, high = (None if bound is None else -bound for bound in (found.high, found.low))
    return f"{verbs[1]} {seconds_between(Interval(-found.value, low, high))}"


def times(factor: float) -> str:
    """``1.05x``."""
    return f"{factor:.2f}x" if factor < 10 else f"{factor:,.0f}x"


def times_between(found: Interval) -> str:
    """``1.05x (1.03 to 1.07)``."""
    if found.low is None or found.high is None:
        return times(found.value)
    return f"{times(found.value)} ({found.low:.2f} to {found.high:.2f})"


def gain(found: Interval) -> str:
    """``+3.37 % (+2.90 to +3.90)``: a relative gain."""
    value = relative(found.value)
    if found.low is None or found.high is None:
        return value
    return f"{value} ({100 * found.low:+.2f} to {100 * found.high:+.2f})"


def relative(change: float) -> str:
    """``+4.95 %``."""
    return f"{100 * change:+.2f} %"


def rows(found: Interval | None) -> str:
    """``12,787 rows (9,000 to 20,000)``; ``never`` for None, and ``or never`` where there is no upper bound."""
    if found is None:
        return "never"
    value = f"{_rows(found.value)} rows"
    if found.low is None:
        return value
    return (
        f"{value} ({_rows(found.low)} or more, or never)"
        if found.high is None
        else (f"{value} ({_rows(found.low)} to {_rows(found.high)})")
    )


def listed(names: tuple[str, ...] | list[str]) -> str:
    """``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _rows(value: float) -> str:
    return f"{round(value):,}" if value < 1e12 else f"{value:.2g}"


def _unit(value: float) -> tuple[float, str]:
    return next(((scale, unit) for scale, unit in _UNITS if abs(value) >= scale), _UNITS[-1] if value else _UNITS[0])


def _seconds(value: float, scale: float, unit: str) -> str:
    return f"{_digits(value / scale)} {unit}"


def _digits(value: float) -> str:
    """Three significant digits, one of them after the point from 100 on, none from 1,000 on."""
    if value == 0:
        return "0"
    decimals = min(3, max(1, 2 - math.floor(math.log10(abs(value))))) if abs(value) < 1000 else 0
    return f"{value:,.{decimals}f}"


def counted(number: int, noun: str) -> str:
    """``1 round``, ``2,000 rounds``, ``3 processes``."""
    plural = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{plural}"
