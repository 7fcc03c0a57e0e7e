"""What changed between two traces, what that supports, and what it does not."""

from __future__ import annotations

from proctor.trace.calling import called_as
from proctor.trace.diff.diffing import Diff, diff
from proctor.trace.diff.gate import Checked, Gate, Outcome, check, read_gate
from proctor.trace.diff.totals import METRICS

__all__ = ["METRICS", "Checked", "Diff", "Gate", "Outcome", "check", "diff", "read_gate"]

called_as(__name__, "diff", home="proctor.trace.diff.diffing")
