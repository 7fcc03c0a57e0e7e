"""The same row asked several times: how many different answers it got."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np

from proctor.audit.compare.intervals import rate, rate_by_row
from proctor.audit.compare.pairs import answered
from proctor.audit.model import Observation, Rate


def repeats_of(observations: Sequence[Observation]) -> tuple[Rate, Rate]:
    """Rows with more than one distinct answer, and answers that are the most frequent one of their row.

    Only rows with two answers or more count. Answers are told apart by their tokens, by their texts where not every
    answer of the row has comparable tokens.
    """
    rows, modal, several = [], [], 0
    asked = outputs_by_row(observations)
    for row, outputs in asked.items():
        counts = Counter(outputs)
        several += len(counts) > 1
        most = counts.most_common(1)[0][1]
        rows += [row] * len(outputs)
        modal += [True] * most + [False] * (len(outputs) - most)
    return rate(several, len(asked)), rate_by_row(np.array(rows, dtype=np.int64), np.array(modal, dtype=bool))


def outputs_by_row(observations: Sequence[Observation]) -> dict[int, list[Hashable]]:
    """What each row was answered, for rows with two answers or more, by row id."""
    by_row: dict[int, list[Observation]] = {}
    for observation in observations:
        if answered(observation):
            by_row.setdefault(observation.row_id, []).append(observation)
    return {row: _outputs(by_row[row]) for row in sorted(by_row) if len(by_row[row]) > 1}


def _outputs(answers: Sequence[Observation]) -> list[Hashable]:
    kinds = {_kind_of_ids(answer) for answer in answers if answer.text != "" or answer.token_ids}
    if len(kinds) == 1 and "none" not in kinds:
        return [answer.token_ids for answer in answers]
    return [answer.text for answer in answers]


def _kind_of_ids(answer: Observation) -> str:
    if not answer.token_ids:
        return "none"
    return "made of bytes" if min(answer.token_ids) < 0 else "the tokenizer's"
