from __future__ import annotations

import math

import pytest

from proctor.audit.compare import compare_repeats, too_identical
from proctor.audit.model import Observation
from tests.audit.compare.made import decoded, row


def samples(answers: list[list[int]], logprob: float | None = None, gap: float = 1.0) -> list[Observation]:
    """Rounds of rows: `answers[row]` are its answers of one token each."""
    made = []
    for number, tokens in enumerate(answers):
        for round_, token in enumerate(tokens):
            told = {} if logprob is None else {
                "logprobs": (logprob,), "top": (((token, logprob), (token + 1, logprob - gap)),)}  # fmt: skip
            made.append(row(number, [token], "a", round_, **told))
    return made


def test_clean_repeats_differ_in_nothing() -> None:
    once = decoded("a", rows=20)
    again = [Observation(**{**{f: getattr(o, f) for f in o.__struct_fields__}, "round": 1}) for o in once]
    found = compare_repeats([*once, *again])
    assert (found.differs, found.bitwise, found.rows) == (False, True, 20)
    assert found.unique[:2] == (0, 20)
    assert found.modal_share[:2] == (40, 40)
    assert found.logprob_equal.value == 1.0
    assert found.unique.high == pytest.approx(0.161, abs=0.001)  # what 20 rows do not exclude


def test_distinct_answers_and_the_most_frequent_one() -> None:
    """Five identical requests, three outputs (vllm #51187)."""
    found = compare_repeats(samples([[1, 1, 2, 3, 1], [4, 4, 4, 4, 4]]))
    assert found.differs
    assert found.rows == 20  # ten pairs a row
    assert found.unique[:2] == (1, 2)
    assert found.modal_share[:2] == (8, 10)
    assert found.token_equal[:2] == (3 + 10, 20)
    assert found.token_equal.low < 0.2  # two rows are two rows, whatever the pairs
    assert found.token_equal.method == "wilson, by row"


def test_one_sitting_says_nothing_of_run_to_run() -> None:
    found = compare_repeats(samples([[1], [2]]))
    assert (found.rows, found.differs, found.unique.of) == (0, False, 0)
    assert "nothing could be compared" in found.remarks


def test_failures_are_left_out_of_the_answers() -> None:
    found = compare_repeats([*samples([[1, 1]]), row(0, text=None, round=2, failure=("infer.stalled", "late"))])
    assert (found.rows, found.failed) == (1, 2)
    assert found.modal_share[:2] == (2, 2)


def test_answers_without_comparable_tokens_are_told_apart_by_their_text() -> None:
    found = compare_repeats([row(0, [5], round=0, text="x"), row(0, [-5], round=1, text="x")])
    assert found.unique[:2] == (0, 1)
    assert not found.differs


def test_clones_at_a_temperature_are_too_identical() -> None:
    """n samples, one unique, because every sample starts the generator anew (UniRL #208)."""
    clones = samples([[number] * 8 for number in range(12)], logprob=math.log(0.6))
    found = too_identical(clones, temperature=1.0)
    assert found.suspicious
    assert found.chance == pytest.approx(0.6 ** (7 * 12))
    assert "12 of 12 rows at temperature 1" in found.remark
    assert not too_identical(clones, temperature=0.0).suspicious


def test_a_model_that_is_sure_may_repeat_itself() -> None:
    sure = samples([[number] * 3 for number in range(12)], logprob=math.log(0.9999))
    found = too_identical(sure, temperature=1.0)
    assert not found.suspicious
    assert found.chance == pytest.approx(0.9999**24)
    assert found.alike[:2] == (12, 12)


def test_one_row_with_two_answers_shows_that_sampling_samples() -> None:
    mixed = samples([[1, 1, 1]] * 20 + [[1, 2, 1]], logprob=math.log(0.5))
    assert too_identical(mixed, temperature=0.7) == (
        (20, 21, *too_identical(mixed, temperature=0.7).alike[2:]),
        None,
        False,
        "",
    )


def test_a_low_temperature_sharpens_the_chance() -> None:
    clones = samples([[number] * 4 for number in range(6)], logprob=math.log(0.6), gap=math.log(1.5))
    found = too_identical(clones, temperature=0.5)
    assert found.chance == pytest.approx((0.36 / (0.36 + 0.16)) ** 18)
    assert found.suspicious


def test_without_logprobs_few_rows_are_not_accused() -> None:
    assert not too_identical(samples([[1, 1]] * 4), temperature=1.0).suspicious
    many = too_identical(samples([[1, 1]] * 5), temperature=1.0)
    assert many.suspicious
    assert many.chance is None
    assert "not known" in many.remark
