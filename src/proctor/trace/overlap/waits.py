"""What waits: calls in which the host waits for a GPU, synchronisations as the tracer saw them, pageable copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from proctor.trace.model import SYNC_KINDS
from proctor.trace.work.api_names import WAITS, kind_of_call
from proctor.trace.work.scope import WHOLE, Scope

if TYPE_CHECKING:
    from proctor.trace.trace import Trace


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one name in which the host waited for a GPU.

    Attributes:
        name: of the call.
        kind: a value of `proctor.trace.work.api_names.Api` that waits.
        calls: how many.
        total: their time in sum, ns; threads that waited side by side count each.
        longest: ns.
    """

    name: str
    kind: str
    calls: int
    total: int
    longest: int


class SyncRows(msgspec.Struct, frozen=True):
    """Synchronisations of one kind (``event``, ``stream wait``, ``stream``, ``context``): how many, ns in sum."""

    kind: str
    rows: int
    total: int


class PageableCopies(msgspec.Struct, frozen=True):
    """Copies from or to pageable memory: how many, bytes, ns in sum; `known` is False where the trace does not say."""

    calls: int
    bytes: int
    total: int
    known: bool


def waits(trace: Trace, scope: Scope = WHOLE) -> tuple[Wait, ...]:
    """Calls that wait, by name, the longest in sum first. With a device, those of processes that use it."""
    sql = """SELECT id, text FROM strings WHERE text GLOB 'cu*Synchronize*' OR text GLOB 'cu*Memcpy*'
        OR text GLOB 'hip*Synchronize*' OR text GLOB 'hip*Memcpy*'"""
    names = {number: text for number, text in trace.rows(sql) if kind_of_call(text) in WAITS}
    if not names:
        return ()
    window = msgspec.structs.replace(scope, device=None)
    users = "1"
    if scope.device is not None:
        used = (f"SELECT process FROM {view} WHERE device = :device" for view in ("kernels", "copies", "memsets"))
        users = f"v.process IN ({' UNION '.join(used)})"
    sql = f"""SELECT v.name, count(*), sum(v."end" - v.start), max(v."end" - v.start) FROM calls v
        WHERE v.name IN ({", ".join(map(str, names))}) AND {window.sql} AND {users} GROUP BY 1"""
    rows = trace.rows(sql, {**window.parameters, "device": scope.device})
    found = [
        Wait(name=names[name], kind=kind_of_call(names[name]), calls=calls, total=total, longest=longest)
        for name, calls, total, longest in rows
    ]
    return tuple(sorted(found, key=lambda wait: (-wait.total, wait.name)))


def sync_rows(trace: Trace, scope: Scope = WHOLE) -> tuple[SyncRows, ...]:
    """Synchronisations as the tracer saw them, by kind."""
    sql = (
        f"""SELECT v.kind, count(*), sum(v."end" - v.start) FROM syncs v WHERE {scope.sql} GROUP BY 1 ORDER BY 3 DESC"""
    )
    return tuple(
        SyncRows(SYNC_KINDS.get(kind or 0, f"kind {kind}"), rows, total)
        for kind, rows, total in trace.rows(sql, scope.parameters)
    )


def pageable_copies(trace: Trace, scope: Scope = WHOLE) -> PageableCopies:
    """Copies whose source or target is pageable memory."""
    sql = f"""SELECT sum(v.source_kind = 0 OR v.target_kind = 0),
            sum(iif(v.source_kind = 0 OR v.target_kind = 0, v.bytes, 0)),
            sum(iif(v.source_kind = 0 OR v.target_kind = 0, v."end" - v.start, 0)),
            count(v.source_kind) = count(*) AND count(v.target_kind) = count(*)
        FROM copies v WHERE {scope.sql}"""
    calls, size, total, known = next(trace.rows(sql, scope.parameters))
    return PageableCopies(calls or 0, size or 0, total or 0, bool(known))
