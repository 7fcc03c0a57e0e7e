"""The hypotheses of a diff: a table of rules, each with the test that it must pass.

A rule states what it was made for and nothing beyond. What none of them fits stays what it is: a list of changes.
"""

from __future__ import annotations

from proctor.trace.diff.evidence import Rule
from proctor.trace.diff.rules.captures import CAPTURE_RULES
from proctor.trace.diff.rules.names import NAME_RULES
from proctor.trace.diff.rules.times import TIME_RULES

RULES: tuple[Rule, ...] = (*NAME_RULES, *TIME_RULES, *CAPTURE_RULES)
"""In the order in which equal hypotheses are shown."""

__all__ = ["RULES"]
