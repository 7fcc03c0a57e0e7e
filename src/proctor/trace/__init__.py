"""GPU traces: where time went, what changed between two, and how one knows. Read-only, offline, alone on its floor."""

from __future__ import annotations

from proctor.trace.reading.opening import open_trace
from proctor.trace.trace import Trace

__all__ = ["Trace", "open_trace"]
