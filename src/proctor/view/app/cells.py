"""Values of records as a page shows them: a template filter for each use."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from proctor.view.browse.rows.paging import CELL_CHARACTERS
from proctor.view.browse.rows.record import MOST_CHARACTERS
from proctor.view.formats import NOTHING, clip


def cell(value: Any) -> str:
    """A value in a table, in a few words."""
    return value_text(value, CELL_CHARACTERS)


def whole_text(value: Any) -> str:
    """A text, as long as the browser shows any."""
    return value_text(value, MOST_CHARACTERS)


def value_text(value: Any, most: int) -> str:
    """A value as text: cut at `most` characters, control characters visible."""
    match value:
        case None:
            return NOTHING
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case datetime():
            return (value.astimezone(UTC) if value.tzinfo else value).strftime("%Y-%m-%d %H:%M:%S")
        case _:
            return clip(str(value), most)


def rate(value: float) -> str:
    """Rows a second."""
    if not math.isfinite(value) or value < 0:
        return NOTHING
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def minute(seconds: float) -> str:
    """A time since the epoch to the minute, in UTC; files may have times that are none."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return NOTHING


def tone(value: Any) -> str:
    """The colour of a value that is yes or no."""
    return "" if not isinstance(value, bool) else "good" if value else "bad"
