"""Everything in one stream ordered by time."""

from __future__ import annotations

from proctor.trace.calling import called_as

called_as(__name__, "timeline", home="proctor.trace.timeline.timeline")
