"""Numbers, shares, durations and texts, as a person reads them. These are the templates' filters."""

from __future__ import annotations

import math
import unicodedata
from datetime import UTC, datetime

from proctor.tasks import Metric

NOTHING = "\u2013"
"""Stands where there is no number."""

_DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Invisible marks that turn the direction of the text around them."""
_FINE = 0.002  # narrower intervals are shown with one more digit


def whole(number: int) -> str:
    """``12,345``."""
    return f"{number:,}"


def percent(share: float, digits: int = 1) -> str:
    """``12.3 %``; what is not quite nothing, or not quite all, is never rounded to it."""
    low, high = 10**-digits / 2 / 100, 1 - 10**-digits / 2 / 100
    if 0 < share < low:
        return f"< {10**-digits:.{digits}f} %"
    if high < share < 1:
        return f"> {100 - 10**-digits:.{digits}f} %"
    return f"{100 * share:.{digits}f} %"


def metric_value(metric: Metric) -> str:
    """The value with its unit; shares as per cent."""
    if metric.value is None:
        return NOTHING
    if is_share(metric):
        return f"{100 * metric.value:.{_digits(metric)}f} %"
    return " ".join(filter(None, [_decimal(metric.value, metric), metric.unit]))


def metric_interval(metric: Metric) -> str:
    """``61.2 to 65.0``, in the unit of the value."""
    if metric.low is None or metric.high is None:
        return "no interval"
    if is_share(metric):
        digits = _digits(metric)
        return f"{100 * metric.low:.{digits}f} to {100 * metric.high:.{digits}f}"
    return f"{_decimal(metric.low, metric)} to {_decimal(metric.high, metric)}"


def is_share(metric: Metric) -> bool:
    """Whether the metric is a part of a whole."""
    return not metric.unit and metric.value is not None and 0 <= metric.value <= 1


def duration(seconds: float) -> str:
    """``47.2 s``, ``12:34 min``, ``3:04:05 h``."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} h" if hours else f"{minutes}:{rest:02} min"


def since(seconds: float) -> str:
    """``+0:47``, ``+1:02:03``: time since the beginning."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"+{hours}:{minutes:02}:{rest:02}" if hours else f"+{minutes}:{rest:02}"


def moment(seconds: float) -> str:
    """A time since the epoch, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def clip(text: str, most: int = 400) -> str:
    """`text`, cut at `most` characters; control characters, which a browser would drop or obey, become visible."""
    cut = text if len(text) <= most else f"{text[: most - 1]}\u2026"
    return "".join("\ufffd" if _is_control(character) else character for character in cut)


def _is_control(character: str) -> bool:
    hidden = unicodedata.category(character) == "Cc" and character not in "\n\t"
    return hidden or character in _DIRECTIONS


def _digits(metric: Metric) -> int:
    narrow = metric.low is not None and metric.high is not None and metric.high - metric.low < _FINE
    return 2 if narrow else 1


def _decimal(number: float, metric: Metric) -> str:
    """As many decimals for a value as for its bounds: three significant digits of the value, at most three decimals."""
    size = abs(metric.value or 0.0)
    decimals = 3 if size < 1 else 2 if size < 10 else 1 if size < 100 else 0
    return f"{number:,.{decimals}f}" if math.isfinite(number) else str(number)
