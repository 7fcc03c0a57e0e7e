"""Comparison of arms: what differs, from where on, by how much, and whether rounding can have done it."""

from proctor.audit.compare.flips import contradicted, suspicious, suspicious_flips
from proctor.audit.compare.identical import Sameness, too_identical
from proctor.audit.compare.intervals import not_excluded, rate
from proctor.audit.compare.nature import Judgement, judged, nature
from proctor.audit.compare.tokens import repeat_table, token_table, token_tables, write_tokens
from proctor.audit.compare.whole import compare, compare_repeats

__all__ = [
    "Judgement",
    "Sameness",
    "compare",
    "compare_repeats",
    "contradicted",
    "judged",
    "nature",
    "not_excluded",
    "rate",
    "repeat_table",
    "suspicious",
    "suspicious_flips",
    "token_table",
    "token_tables",
    "too_identical",
    "write_tokens",
]
