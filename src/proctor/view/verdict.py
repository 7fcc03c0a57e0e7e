"""The first line of a report: is everything there, and what does the exit code mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from proctor.results import Ledger
from proctor.view.formats import percent, whole

Tone = Literal["good", "warn", "bad", "open"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a run ended, in words; `exit_code` is None while it has not."""

    tone: Tone
    headline: str
    detail: str
    exit_code: int | None


def verdict(ledgers: list[Ledger], exit_code: int | None, max_error_rate: float) -> Verdict:
    """The verdict on a run from its reconciliation (no ledgers: it was never closed)."""
    said = _SAYINGS.get(exit_code) if exit_code is not None else None
    if said is None or not ledgers:
        return Verdict(
            "open", "Not closed yet", "There is no reconciliation: the run is under way or was cut off.", None
        )
    tone, headline, detail = said
    return Verdict(tone, headline, detail(ledgers, max_error_rate), exit_code)


def _complete(ledgers: list[Ledger], _limit: float) -> str:
    expected = sum(ledger.expected for ledger in ledgers)
    errors = sum(sum(ledger.errors.values()) for ledger in ledgers)
    records = f"All {whole(expected)} expected records are there, each once"
    rate = (
        f"{whole(errors)} ({percent(errors / expected)}) say why there is no answer" if errors else "all with an answer"
    )
    return f"{records}; {rate}." if expected else "The source has no rows."


def _too_many(ledgers: list[Ledger], limit: float) -> str:
    over = [f"{percent(x.error_rate)} of {x.checkpoint}" for x in ledgers if x.error_rate > limit]
    ended = f"{', '.join(over)} ended in an error, the limit is {percent(limit)}"
    return f"Every row has its record, but {ended}. The scores cover the answered rows only."


def _incomplete(ledgers: list[Ledger], _limit: float) -> str:
    parts = {
        "rows have no final record": sum(x.missing + sum(x.unanswered.values()) for x in ledgers),
        "records are there more than once": sum(x.duplicate for x in ledgers),
        "records are of rows that the source does not have": sum(x.unexpected for x in ledgers),
        "records have neither an answer nor an error, or both": sum(x.unsound for x in ledgers),
        "notices of the reader say that the source is not sound": sum(len(x.notices) for x in ledgers),
    }
    found = "; ".join(f"{whole(count)} {what}" for what, count in parts.items() if count)
    return f"{found or 'The counts do not add up'}. Running the same command again resumes the run."


_SAYINGS: dict[int, tuple[Tone, str, Callable[[list[Ledger], float], str]]] = {
    0: ("good", "Complete", _complete),
    2: ("warn", "Complete, with too many errors", _too_many),
    3: ("bad", "Incomplete", _incomplete),
    130: ("warn", "Interrupted", _incomplete),
}
