"""Copies and memsets of a census: by kind, in a block of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from proctor.trace.model import COPY_KINDS, MEMORY_KINDS
from proctor.trace.work.scope import WHOLE, Scope

if TYPE_CHECKING:
    from proctor.trace.trace import Trace


class Copies(msgspec.Struct, frozen=True, kw_only=True):
    """Copies of one kind between two kinds of memory.

    Attributes:
        kind: the direction in words, e.g. ``host to device``, ``peer to peer``.
        source, target: kinds of memory, e.g. ``pageable``, ``pinned``, ``device``; empty where the trace does not say.
        calls: copies.
        bytes: their sum.
        total: durations added up, ns.
        least, most: the shortest and the longest, ns.
    """

    kind: str
    source: str
    target: str
    calls: int
    bytes: int
    total: int
    least: int
    most: int


class Memsets(msgspec.Struct, frozen=True, kw_only=True):
    """Memsets of one kind of memory; the attributes are those of `Copies`."""

    memory: str
    calls: int
    bytes: int
    total: int
    least: int
    most: int


_FIGURES = 'count(*), sum(v.bytes), sum(v."end" - v.start), min(v."end" - v.start), max(v."end" - v.start)'


def copies_of(trace: Trace, scope: Scope = WHOLE) -> tuple[Copies, ...]:
    """Copies within `scope` by kind, the longest total first; empty if there are none."""
    sql = f"""SELECT v.kind, v.source_kind, v.target_kind, {_FIGURES} FROM copies v
        WHERE v."end" >= v.start AND {scope.sql} GROUP BY 1, 2, 3 ORDER BY 6 DESC"""
    return tuple(
        Copies(
            kind=kind_of_copy(kind),
            source=kind_of_memory(source),
            target=kind_of_memory(target),
            calls=calls,
            bytes=size or 0,
            total=total,
            least=least,
            most=most,
        )
        for kind, source, target, calls, size, total, least, most in trace.rows(sql, scope.parameters)
    )


def memsets_of(trace: Trace, scope: Scope = WHOLE) -> tuple[Memsets, ...]:
    """Memsets within `scope` by kind of memory, the longest total first; empty if there are none."""
    sql = f"""SELECT v.memory_kind, {_FIGURES} FROM memsets v
        WHERE v."end" >= v.start AND {scope.sql} GROUP BY 1 ORDER BY 4 DESC"""
    return tuple(
        Memsets(memory=kind_of_memory(memory), calls=calls, bytes=size or 0, total=total, least=least, most=most)
        for memory, calls, size, total, least, most in trace.rows(sql, scope.parameters)
    )


def kind_of_copy(kind: int | None) -> str:
    """A copy's direction in words."""
    return COPY_KINDS.get(kind or 0, f"kind {kind}")


def kind_of_memory(kind: int | None) -> str:
    """A kind of memory in words; empty where the trace does not say."""
    return "" if kind is None else MEMORY_KINDS.get(kind, f"kind {kind}")
