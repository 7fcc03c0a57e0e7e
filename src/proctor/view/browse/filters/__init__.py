"""The filter language: ``error.kind = "infer.crashed" and latency_ms > 500``, typed against the columns of a run.

::

    filter     = all { "or" all }
    all        = one { "and" one }
    one        = "not" one | "(" filter ")" | question
    question   = column                                    a column of yes and no
               | column ("=" | "!=" | "<" | "<=" | ">" | ">=") (value | column)
               | column ("contains" | "starts with" | "ends with") text
               | column ["not"] "in" "(" value { "," value } ")"
               | column "is" ["not"] "null"
    value      = text | number | "true" | "false"          a time is a text: "2026-11-30 10:00"
    text       = "..." or '...', with \\\\ \\" \\' \\n \\r \\t inside
    column     = name | `any name at all`

What is not there answers every question but ``is null`` with no, and so does a number that is none (NaN): a row
matches a filter or its ``not``, never both and never neither. Words of the language are the same in capitals.
"""

from __future__ import annotations

from proctor.view.browse.filters.columns import Column, Columns, Kind
from proctor.view.browse.filters.compiling import Condition, compile_filter
from proctor.view.browse.filters.completing import Candidate, complete
from proctor.view.browse.filters.errors import FilterError
from proctor.view.browse.filters.parsing import MOST_CHARACTERS, MOST_DEPTH, parse
from proctor.view.browse.filters.printing import name_text, to_text, value_text

__all__ = [
    "MOST_CHARACTERS",
    "MOST_DEPTH",
    "Candidate",
    "Column",
    "Columns",
    "Condition",
    "FilterError",
    "Kind",
    "compile_filter",
    "complete",
    "name_text",
    "parse",
    "to_text",
    "value_text",
]
