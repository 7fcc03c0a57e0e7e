"""Values of a kind that a column cannot have: SQLite lets a file put text, a fraction or bytes where a number belongs.

No figure is looked at twice for that, since no export has such values; it is found out when a computation fails.
"""

from __future__ import annotations

from proctor.rows import UserError
from proctor.trace.trace import Trace
from proctor.trace.views import VIEWS, quoted

_NOT_WHOLE = {
    *(("strings", "text"), ("annotations", "text"), ("diagnostics", "text"), ("processes", "name")),
    ("kernels", "reported_occupancy"),
}
_SMALL = {"device", "context"}
"""CUPTI gives these as 32 bits."""


def misplaced(trace: Trace) -> UserError | None:
    """What to say of the first column that holds what it cannot; None where every value is of its kind.

    Raises:
        UserError: the file is damaged in another way.
    """
    for view, (_, columns) in VIEWS.items():
        names = [name for name in columns if (view, name) not in _NOT_WHOLE]
        wrong = ", ".join(f"max({_wrong(name)})" for name in names)
        for name, found in zip(names, next(trace.rows(f"SELECT {wrong} FROM {view}")), strict=True):
            if found:
                what = f"{view}.{name} has values that are no whole numbers, or far too large"
                return UserError(
                    f"the file is damaged: {what}", where=str(trace.path), fix="export it again with `nsys export`"
                )
    return None


def _wrong(name: str) -> str:
    column = quoted(name)
    large = f" OR {column} NOT BETWEEN -2147483648 AND 2147483647" if name in _SMALL else ""
    return f"typeof({column}) NOT IN ('integer', 'null'){large}"
