"""What is wrong with a filter, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from proctor.rows import UserError


@dataclass(frozen=True, slots=True)
class Wanted:
    """What has to follow at the end of a text that breaks off.

    Attributes:
        kind: ``column``, an ``operator``, a ``value``, or what ``after`` a whole question may stand.
        column: the column that is being asked, for an operator or a value.
        open: how many parentheses are open.
        words: the only words that can follow; empty where there are more ways on.
    """

    kind: Literal["column", "operator", "value", "after"]
    column: str | None = None
    open: int = 0
    words: tuple[str, ...] = ()


class FilterError(UserError):
    """A filter that cannot be: what is wrong, from which character to which (counted from 0), and what was meant.

    Attributes:
        start, end: the characters that it is about; both are the length of the text where something is missing.
        suggestion: the nearest known word, None if there is none.
        wanted: what would have to follow, if nothing is wrong but that the text breaks off.
    """

    def __init__(
        self,
        what: str,
        start: int,
        end: int,
        *,
        suggestion: str | None = None,
        fix: str | None = None,
        wanted: Wanted | None = None,
    ) -> None:
        hint = f"did you mean {suggestion}?" if suggestion is not None and fix is None else fix
        super().__init__(what, where=f"filter, character {start + 1}", fix=hint)
        self.start, self.end, self.suggestion, self.wanted = start, end, suggestion, wanted
