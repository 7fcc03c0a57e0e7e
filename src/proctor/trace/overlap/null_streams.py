"""Which streams are null (default) streams, as far as the trace says."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from proctor.trace.views import NULL_STREAM_FLAG

if TYPE_CHECKING:
    from proctor.trace.trace import Trace

Owner = tuple[int, int, int]
"""(pid, context, stream)."""


class NullStreams(NamedTuple):
    """What the trace says of its streams.

    Attributes:
        null: those it calls null streams.
        created: those it says were created by the program.
        contexts: (pid, context) whose null stream it names.
    """

    null: frozenset[Owner]
    created: frozenset[Owner]
    contexts: frozenset[tuple[int, int]]

    def is_null(self, pid: int, context: int, stream: int) -> bool | None:
        """Whether this is a null stream; None where the trace does not say."""
        owner = pid, context, stream
        if owner in self.null:
            return True
        return False if owner in self.created or owner[:2] in self.contexts else None


def null_streams(trace: Trace) -> NullStreams:
    """Reads ``TARGET_INFO_CUDA_STREAM``, ``_CONTEXT_INFO`` and ``_NULL_STREAM``, of which a version has one or two."""
    streams = list(trace.rows("SELECT pid, context, stream, flag FROM streams"))
    named = list(
        trace.rows("SELECT pid, context, null_stream FROM contexts UNION SELECT pid, context, stream FROM null_streams")
    )
    flagged = {(pid, context, stream) for pid, context, stream, flag in streams if flag == NULL_STREAM_FLAG}
    null = frozenset({*named, *flagged})
    created = frozenset((pid, context, stream) for pid, context, stream, flag in streams if flag in (1, 2)) - null
    return NullStreams(null, created, frozenset((pid, context) for pid, context, _ in null))
