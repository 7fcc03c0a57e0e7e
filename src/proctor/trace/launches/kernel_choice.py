"""Which kernel a person means: by id, by its whole name, by a part of it, or by a regular expression."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from proctor.rows import UserError
from proctor.trace.names.normal import short_name
from proctor.trace.trace import Trace

_FEW = 5


class Kernel(msgspec.Struct, frozen=True):
    """A kernel of the trace, by its demangled name.

    Attributes:
        id: of its name, in this trace only.
        name: whole; can be thousands of characters.
        launches: in the whole trace.
        total: ns of these launches, added up.
    """

    id: int
    name: str
    launches: int
    total: int


class AmbiguousKernelError(UserError):
    """More than one kernel fits, and the caller wanted one. The most expensive is the first of `candidates`."""

    def __init__(self, pattern: str, candidates: Sequence[Kernel], where: str) -> None:
        self.candidates = tuple(candidates)
        shown = "; ".join(f"#{each.id} {short_name(each.name, 60)}" for each in candidates[:_FEW])
        more = f"; and {len(candidates) - _FEW} more" if len(candidates) > _FEW else ""
        super().__init__(
            f"{pattern!r} fits {len(candidates)} kernels: {shown}{more}",
            where=where,
            fix="give more of the name, or the number with its #, or ask for all of them together",
        )


def kernels_of(trace: Trace) -> list[Kernel]:
    """Every kernel of the trace, the most expensive first.

    Raises:
        UserError: the trace has no kernels.
    """
    if not trace.has("kernels"):
        raise trace.missing("kernels", "looking for a kernel")
    # Rows are added up in a table keyed by the name: GROUP BY would sort millions of rows in memory first.
    trace.run("CREATE TEMP TABLE kernel_totals (name INTEGER PRIMARY KEY, launches INTEGER, total INTEGER)")
    try:
        trace.run(
            f'INSERT INTO kernel_totals SELECT {NAME}, 1, COALESCE("end" - start, 0) FROM kernels '
            f"WHERE {NAME} NOT NULL "
            "ON CONFLICT DO UPDATE SET launches = launches + 1, total = total + excluded.total"
        )
        rows = list(trace.rows("SELECT name, launches, total FROM kernel_totals ORDER BY total DESC, name"))
    finally:
        trace.run("DROP TABLE kernel_totals")
    names = trace.text(name for name, _, _ in rows)
    return [Kernel(name, names[name], launches, total) for name, launches, total in rows]


NAME = "COALESCE(name, short, mangled)"
"""The id of a kernel's name in a row of ``kernels``."""


def ids_of(trace: Trace, names: Sequence[str]) -> dict[str, int]:
    """The ids of kernels' names, as ``#ID`` takes them; a name that the trace does not have is left out."""
    if not names:
        return {}
    marks = ", ".join("?" * len(names))
    rows = trace.rows(f"SELECT text, min(id) FROM strings WHERE text IN ({marks}) GROUP BY text", list(names))
    return {str(text): int(number) for text, number in rows}


def choose(trace: Trace, pattern: str, *, all_: bool = False) -> list[Kernel]:
    """The kernels that `pattern` means: ``#123`` is an id; else the first of these that finds any is taken: the whole
    name, a part of the name (upper and lower case alike), a regular expression.

    Raises:
        AmbiguousKernelError: several fit, and `all_` is not set.
        UserError: none fits, or the trace has no kernels.
    """
    everything = kernels_of(trace)
    found = _fitting(everything, pattern)
    if not found:
        dearest = "; ".join(f"#{each.id} {short_name(each.name, 60)}" for each in everything[:_FEW])
        raise UserError(f"no kernel fits {pattern!r}", where=str(trace.path), fix=f"the most expensive are: {dearest}")
    if len(found) > 1 and not all_:
        raise AmbiguousKernelError(pattern, found, str(trace.path))
    return found


def _fitting(kernels: Sequence[Kernel], pattern: str) -> list[Kernel]:
    if re.fullmatch(r"#\d+", pattern):
        return [each for each in kernels if each.id == int(pattern[1:])]
    if found := [each for each in kernels if each.name == pattern]:
        return found
    if found := [each for each in kernels if pattern.lower() in each.name.lower()]:
        return found
    try:
        expression = re.compile(pattern)
    except re.error:
        return []
    return [each for each in kernels if expression.search(each.name)]
