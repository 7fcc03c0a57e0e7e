"""What ran at the same time, what waited, and the antipatterns of transfers that a trace can show."""

from __future__ import annotations

from proctor.trace.calling import called_as

called_as(__name__, "overlap", home="proctor.trace.overlap.overlap")
