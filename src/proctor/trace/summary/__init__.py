"""One screen: what is slow, is the GPU idle, what is risky, what next."""

from __future__ import annotations

from proctor.trace.calling import called_as

called_as(__name__, "summary", home="proctor.trace.summary.summary")
