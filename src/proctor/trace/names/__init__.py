"""Names of kernels: one spelling for each, what kind of work it does, what its name says, and what it puts at risk.

normal                 one spelling across tools: `normalise`, `short_name`
lineup, lineup.toml    kind of work, by an ordered table of rules that a user can extend: `line_up`
decode, grammars       what the name says, field by field, with evidence: `decode`
risks, risks.toml      determinism, run to run and across batches: `risks_of`
"""

from __future__ import annotations

from proctor.trace.names.decode import decode
from proctor.trace.names.decoded import Decoded, Field, Launch
from proctor.trace.names.lineup import OTHER, LineUp, Placement, Rule, line_up
from proctor.trace.names.normal import normalise, parts, short_name
from proctor.trace.names.risks import Answer, Basis, Risk, Risks, risks_of

__all__ = [
    "OTHER",
    "Answer",
    "Basis",
    "Decoded",
    "Field",
    "Launch",
    "LineUp",
    "Placement",
    "Risk",
    "Risks",
    "Rule",
    "decode",
    "line_up",
    "normalise",
    "parts",
    "risks_of",
    "short_name",
]
