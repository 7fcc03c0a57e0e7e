"""Tokens with what the model thought of them."""

from __future__ import annotations

import math

from proctor.view.charts.tokens import MOST_TOKENS, SHADES, tokens


def test_each_token_tells_its_probability_in_words_and_as_a_shade() -> None:
    found = tokens([7, 8, 9, 10, 11], [0.0, math.log(0.9), math.log(0.3), -20.0, 0.1])
    assert found is not None
    assert [token.shade for token in found.shown] == [0, 1, 3, 4, 0]
    assert [token.percent for token in found.shown] == ["100 %", "90 %", "30 %", "<0.1 %", "100 %"]
    assert found.shown[2].title == "token 3, id 9: 30 %, log-probability -1.204"
    assert found.least == found.shown[3]
    assert found.mean is not None
    assert math.isclose(found.mean, (math.log(0.9) + math.log(0.3) - 20) / 5)
    assert found.left_out == 0
    assert [shade for shade, _ in found.legend] == list(range(len(SHADES) + 1))
    assert found.legend[0][1] == "99 % and more"
    assert found.legend[-1][1] == "below 10 %"


def test_numbers_that_are_none_are_no_numbers() -> None:
    assert tokens([1, 2], []) is None
    found = tokens([1], [math.nan, None, -math.inf])
    assert found is not None
    assert [token.percent for token in found.shown] == ["?", "?", "<0.1 %"]
    assert [token.shade for token in found.shown] == [None, None, 4]
    assert "id" not in found.shown[2].title
    assert [token.number for token in found.shown] == [1, None, None]
    nothing = tokens([1], [None])
    assert nothing is not None
    assert (nothing.mean, nothing.least) == (None, None)


def test_a_long_answer_is_cut_and_told() -> None:
    found = tokens(range(MOST_TOKENS + 5), [-1.0] * (MOST_TOKENS + 5), left_out=10)
    assert found is not None
    assert len(found.shown) == MOST_TOKENS
    assert found.left_out == 15
