"""Names and nesting of NVTX ranges: each distinct path of names once, by a small number."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from proctor.trace.trace import Trace

OUTSIDE = 0
"""The path of what no range encloses."""

_PER_CALL = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = .*", re.DOTALL)
"""What PyTorch appends to an operator's name, different at each call.

Source: ``getNvtxStr`` in torch/csrc/profiler/util.cpp.
"""

_DOMAIN_CREATED = 75
_DEEPER, _FURTHER = "(deeper ranges)", "(further ranges)"


class Range(NamedTuple):
    """The innermost range of a path."""

    parent: int
    depth: int
    name: str
    domain: str


class Paths:
    """The distinct paths of a trace, such as ``step > forward > attention``; path 0 lies outside of all ranges.

    Memory grows with the number of distinct paths, not with the number of ranges, and has limits: what nests deeper
    than `DEEPEST` (pushes without a pop) ends in one ``(deeper ranges)``; paths beyond `MOST` (ranges with a name of
    their own for each request) are all ``(further ranges)``.
    """

    DEEPEST = 256
    MOST = 200_000

    def __init__(self) -> None:
        self._ranges = [Range(OUTSIDE, 0, "", "")]
        self._ids: dict[tuple[int, str, str], int] = {}

    def __len__(self) -> int:
        return len(self._ranges)

    def __getitem__(self, path: int) -> Range:
        return self._ranges[path]

    def child(self, parent: int, name: str, domain: str = "") -> int:
        """The path of a range called `name` directly within `parent`."""
        if self._ranges[parent].depth >= self.DEEPEST:
            if self._ranges[parent].name == _DEEPER:
                return parent
            name, domain = _DEEPER, ""
        key = (parent, name, domain)
        found = self._ids.get(key)
        if found is None and len(self._ranges) > self.MOST:
            return self._further()
        if found is None:
            found = self._ids[key] = len(self._ranges)
            self._ranges.append(Range(parent, self._ranges[parent].depth + 1, name, domain))
        return found

    def _further(self) -> int:
        key = (OUTSIDE, _FURTHER, "")
        if key not in self._ids:
            self._ids[key] = len(self._ranges)
            self._ranges.append(Range(OUTSIDE, 1, _FURTHER, ""))
        return self._ids[key]

    def names(self, path: int) -> tuple[str, ...]:
        """The names from the outermost range to the innermost; empty outside of all ranges."""
        return tuple(self._ranges[each].name for each in self.chain(path))

    def chain(self, path: int) -> list[int]:
        """The path and those it lies in, the outermost first; empty outside of all ranges."""
        found = []
        while path != OUTSIDE:
            found.append(path)
            path = self._ranges[path].parent
        return found[::-1]

    def text(self, path: int) -> str:
        """The path for people: ``step > forward``; ``(outside of all ranges)`` for path 0."""
        return " > ".join(self.names(path)) or "(outside of all ranges)"


def plain(text: str) -> str:
    """A range's name without what PyTorch appends to it at each call: ``aten::add, op_id = 7`` is ``aten::add``."""
    return _PER_CALL.sub("", text) if " = " in text else text


class Texts:
    """Texts of annotations: written in the row, or an id into the strings; only those that occur are read.

    A row with neither is called ``(unnamed)``.
    """

    _KEEP = 100_000

    def __init__(self, trace: Trace, *, exact: bool = False) -> None:
        self._trace = trace
        self._exact = exact
        self._known: dict[int, str] = {}
        self._domains = _domains(trace)

    def of(self, text: str | None, text_id: int | None) -> str:
        """The name of a range, shortened by `plain` unless exact texts are wanted."""
        if text is None:
            text = self._string(text_id)
        return text if self._exact else plain(text)

    def domain(self, process: int | None, domain: int | None) -> str:
        """The name of a domain; empty for the default domain, ``domain 3`` where the trace does not name it."""
        if not domain:
            return ""
        named = self._domains.get((process, domain)) or self._domains.get((None, domain))
        return named or f"domain {domain}"

    def _string(self, text_id: int | None) -> str:
        if text_id is None:
            return "(unnamed)"
        if text_id not in self._known:
            if len(self._known) >= self._KEEP:
                self._known.clear()
            self._known.update(self._trace.text([text_id]))
        return self._known[text_id]


def _domains(trace: Trace) -> dict[tuple[int | None, int], str]:
    sql = (
        "SELECT process, domain, COALESCE(text, (SELECT s.text FROM strings s WHERE s.id = text_id)) "
        "FROM annotations WHERE kind = ? AND domain IS NOT NULL"
    )
    # A row without a thread, hence without a process, names the domain for all of them.
    return {(process, domain): str(text or "") for process, domain, text in trace.rows(sql, (_DOMAIN_CREATED,))}
