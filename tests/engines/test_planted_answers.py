"""What is planted besides shifted logits: lost tokens, blindness, NaN, stop texts, seeds, servers that tell less."""

from __future__ import annotations

import math

import pytest

from proctor.engines.capabilities import capabilities
from tests.engines.planted import alone, asked, differing, planted, together
from tests.engines.tiny import ask, picture

ROWS = asked(range(20))


@pytest.mark.parametrize("step", [0, 4])
def test_the_most_likely_token_can_lose(step: int) -> None:
    config = planted({"batch": 2, "loses": 20.0, "step": step})
    for one, other in zip(together(config, ROWS), alone(config, ROWS), strict=True):
        assert one.token_ids[:step] == other.token_ids[:step]
        assert one.token_ids[step] != other.token_ids[step]
        assert one.top_logprobs is not None
        assert other.top_logprobs is not None
        assert one.top_logprobs[step][0][0] == other.top_logprobs[step][1][0], "the second becomes the first"


def test_what_loses_less_than_its_lead_stays() -> None:
    config = planted({"batch": 2, "loses": 0.01}, near_ties=0.0)
    one, other = together(config, ROWS), alone(config, ROWS)
    assert [response.token_ids for response in one] == [response.token_ids for response in other]
    assert len(differing(one, other)) == len(ROWS)


def test_log_probabilities_may_be_no_numbers_from_a_token_on() -> None:
    plain = alone(planted(), ROWS)
    for one, other in zip(alone(planted({"nan": True, "step": 2}), ROWS), plain, strict=True):
        assert one.token_ids == other.token_ids
        assert one.logprobs is not None
        assert other.logprobs is not None
        assert one.logprobs[:2] == other.logprobs[:2]
        assert all(map(math.isnan, one.logprobs[2:]))


def test_leaders_that_were_asked_for_may_not_be_told() -> None:
    rows = asked(range(20), top_logprobs=4)
    for one, other in zip(alone(planted({"hides": 1, "top": 4, "step": 1}), rows), alone(planted(), rows), strict=True):
        assert one.top_logprobs is not None
        assert other.top_logprobs is not None
        assert one.top_logprobs[0] == other.top_logprobs[0]
        assert [len(leaders) for leaders in one.top_logprobs[1:]] == [3] * (len(one.token_ids) - 1)
        assert one.logprobs == other.logprobs


def test_a_blind_model_answers_alike_whatever_the_image() -> None:
    red, blue = (ask(1, [picture(colour=colour)], logprobs=True) for colour in ("red", "blue"))
    text = ask(2, logprobs=True)
    seeing, blind = alone(planted(), [red, blue, text]), alone(planted({"blind": True}), [red, blue, text])
    assert seeing[0].token_ids != seeing[1].token_ids
    assert blind[0].token_ids == blind[1].token_ids
    assert blind[2] == seeing[2]


@pytest.mark.parametrize(("wanted", "hit"), [(True, [1]), (False, [2]), (None, [1, 2])])
def test_an_effect_may_need_a_stop_text(wanted: bool | None, hit: list[int]) -> None:
    rows = [ask(1, logprobs=True, stop=("###",)), ask(2, logprobs=True)]
    assert differing(alone(planted({"stops": wanted, "ulps": 4.0}), rows), alone(planted(), rows)) == hit


def test_a_fixed_seed_makes_clones() -> None:
    one, other = (asked(range(20), temperature=1.0, seed=seed) for seed in (1, 2))
    assert alone(planted(), one) != alone(planted(), other)
    assert alone(planted(fixed_seed=42), one) == alone(planted(fixed_seed=42), other)
    assert alone(planted(fixed_seed=1), other) == alone(planted(), one)


def test_a_server_may_tell_the_text_alone() -> None:
    for told, whole in zip(alone(planted(text_only=True), ROWS), alone(planted(), ROWS), strict=True):
        assert told.text == whole.text
        assert (told.token_ids, told.logprobs, told.top_logprobs) == ((), None, None)
        assert told.finish_reason == "stop"
    can = capabilities(planted(text_only=True))
    assert (can.token_ids, can.logprobs, can.replay, can.reference) == (False, False, False, None)


@pytest.mark.parametrize(("unit", "length"), [("words", 5), ("characters", 15)])
def test_prompts_are_counted_in_their_unit_and_an_image_is_one(unit: str, length: int) -> None:
    (found,) = alone(planted(unit=unit), [ask(1, [picture()], text="what is it now")])
    assert found.prompt_tokens == length
