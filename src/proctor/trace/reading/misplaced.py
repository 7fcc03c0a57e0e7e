"""Values of a kind that a column cannot have: SQLite lets a file put text, a fraction or bytes where a number belongs.

No figure is looked at twice for that, since no export has such values; it is found out when a computation fails.
"""

from __future__ import annotations

from proctor.rows import UserError
from proctor.trace.trace import Trace
from proctor.trace.views import VIEWS, quoted

_TEXTS = {("strings", "text"), ("annotations", "text"), ("diagnostics", "text"), ("processes", "name")}
_SMALL = {"device", "context"}
"""CUPTI gives these as 32 bits."""


def misplaced(trace: Trace) -> UserError | None:
    """What to say of the first column that holds what it cannot; None where every value is of its kind.

    Raises:
        UserError: the file is damaged in another way.
    """
    for view, (_, columns) in VIEWS.items():
        wrong = ", ".join(f"max({_wrong(view, name)})" for name in columns)
        for name, found in zip(columns, next(trace.rows(f"SELECT {wrong} FROM {view}")), strict=True):
            if found:
                kind = "text" if (view, name) in _TEXTS else "whole numbers, or far too large"
                what = f"{view}.{name} has values that are no {kind}"
                return UserError(
                    f"the file is damaged: {what}", where=str(trace.path), fix="export it again with `nsys export`"
                )
    return None


def _wrong(view: str, name: str) -> str:
    column = quoted(name)
    if (view, name) in _TEXTS:
        return f"typeof({column}) NOT IN ('text', 'null')"
    if name == "reported_occupancy":
        return f"typeof({column}) NOT IN ('integer', 'real', 'null')"
    large = f" OR {column} NOT BETWEEN -2147483648 AND 2147483647" if name in _SMALL else ""
    return f"typeof({column}) NOT IN ('integer', 'null'){large}"
