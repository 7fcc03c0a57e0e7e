from __future__ import annotations

import math
import struct
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from proctor.engines.pseudo_model import CANDIDATES
from proctor.rows import ErrorKind, Request, UserError
from tests.engines.planted import alone, asked, differing, loaded, planted, together, told
from tests.engines.tiny import ask, picture

ROWS = asked(range(40))
SEEDS = range(20)


def reason(config: Any) -> str:
    with pytest.raises(UserError) as caught:
        loaded(config)
    return str(caught.value)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_planted_is_the_same_in_any_company(seed: int) -> None:
    config = planted(seed=seed)
    expected = alone(config, ROWS)
    assert together(config, ROWS) == expected
    assert sorted(together(config, ROWS[::-1]), key=lambda r: r.id) == expected
    engine = loaded(config)
    assert told(engine, ROWS[:7], ROWS[7:]) == told(engine, ROWS) == expected


def test_rows_prompts_images_and_seeds_answer_differently() -> None:
    variants = [ask(1), ask(2), ask(1, text="Another?"), ask(1, [picture()]), ask(1, [picture(colour="red")])]
    assert len({response.token_ids for response in alone(planted(), variants)}) == 5
    assert alone(planted(seed=1), variants)[0].token_ids != alone(planted(), variants)[0].token_ids


def test_log_probabilities_are_those_of_a_distribution_in_float32() -> None:
    for response in alone(planted(), asked(range(40), top_logprobs=CANDIDATES)):
        assert response.logprobs is not None
        assert response.top_logprobs is not None
        for token, logprob, top in zip(response.token_ids, response.logprobs, response.top_logprobs, strict=True):
            assert top[0] == (token, logprob)
            assert [value for _, value in top] == sorted((value for _, value in top), reverse=True)
            assert len({id_ for id_, _ in top}) == CANDIDATES
            assert 0.8 < math.fsum(math.exp(value) for _, value in top) < 1
            assert struct.unpack("f", struct.pack("f", logprob))[0] == logprob


def test_a_small_share_of_positions_is_nearly_a_tie() -> None:
    margins = [
        top[0][1] - top[1][1]
        for response in alone(planted(near_ties=0.1), asked(range(300)))
        for top in response.top_logprobs or ()
    ]
    assert 0.08 < sum(margin < 1e-3 for margin in margins) / len(margins) < 0.12
    assert all(margin >= 0 for margin in margins)


def test_answers_end_by_themselves_or_at_the_limit() -> None:
    config = planted(shortest=3, longest=9)
    free = alone(config, asked(range(100)))
    assert {len(response.token_ids) for response in free} == set(range(3, 10))
    assert {response.finish_reason for response in free} == {"stop"}
    short = alone(config, asked(range(100), max_tokens=2))
    assert {(len(response.token_ids), response.finish_reason) for response in short} == {(2, "length")}
    assert all(cut.token_ids == whole.token_ids[:2] for cut, whole in zip(short, free, strict=True))


def test_the_text_is_made_of_the_tokens() -> None:
    (response,) = alone(planted(words=["left", "right"], shortest=1, longest=1), [ask(1)])
    assert response.text == ("left", "right")[response.token_ids[0] % 2]
    (named,) = alone(planted(), [ask(1)])
    assert named.text == " ".join(f"w{token}" for token in named.token_ids)
    assert (named.logprobs, named.top_logprobs) == (None, None)


def test_sampled_rows_draw_from_their_own_seed() -> None:
    config = planted()
    hot = asked(range(10), temperature=1.0)
    assert together(config, hot) == alone(config, hot)
    assert alone(config, asked(range(10), temperature=1.0, seed=1)) != alone(config, hot)
    assert alone(config, hot) != alone(config, asked(range(10)))


# --- replay


def test_forced_tokens_are_chosen_and_scored_by_the_model() -> None:
    config = planted()
    free = alone(config, ROWS)
    replayed = alone(config, [_forced(row, found.token_ids) for row, found in zip(ROWS, free, strict=True)])
    assert replayed == free
    other = alone(config, [_forced(row, (*found.token_ids[:3], 1, 2)) for row, found in zip(ROWS, free, strict=True)])
    for told_, found in zip(other, free, strict=True):
        assert told_.token_ids == (*found.token_ids[:3], 1, 2)
        assert told_.logprobs is not None
        assert found.logprobs is not None
        assert told_.logprobs[:3] == found.logprobs[:3]
        assert told_.top_logprobs is not None
        assert found.top_logprobs is not None
        assert told_.top_logprobs[3] == found.top_logprobs[3]
        assert told_.logprobs[3] <= found.logprobs[3]


def test_a_forced_token_out_of_the_vocabulary_costs_its_row() -> None:
    bad, good = alone(planted(vocabulary=100), [ask(1, forced=(100,)), ask(2, forced=(99,))])
    assert bad.failure is not None
    assert bad.failure.kind is ErrorKind.INFER_REJECTED
    assert good.token_ids == (99,)


def _forced(request: Request, tokens: tuple[int, ...]) -> Request:
    return replace(request, sampling=replace(request.sampling, forced=tokens))


# --- effects


@pytest.mark.parametrize("seed", SEEDS)
def test_an_effect_begins_at_its_batch(seed: int) -> None:
    threshold = 2 + seed % 7
    config = planted({"batch": threshold, "ulps": 4.0}, seed=seed)
    expected = alone(config, ROWS)
    engine = loaded(config)
    below = told(engine, *(ROWS[n : n + threshold - 1] for n in range(0, 40, threshold - 1)))
    assert below == expected
    assert len(differing(told(engine, ROWS), expected)) == 40


def test_an_effect_is_the_same_every_time_unless_it_is_noise() -> None:
    still, noisy = (planted({"batch": 5, "ulps": 4.0, "noise": noise}) for noise in (False, True))
    assert together(still, ROWS) == together(still, ROWS)
    assert together(still, ROWS[:20]) == together(still, ROWS)[:20]
    assert len(differing(together(noisy, ROWS), together(noisy, ROWS))) == 40
    assert together(noisy, ROWS[:4]) == alone(noisy, ROWS[:4])


def test_small_effects_flip_near_ties_only_and_large_ones_flip_all() -> None:
    rows = asked(range(400))
    flipped, margins = _flips(planted({"batch": 2, "ulps": 4.0}), rows)
    assert 0 < flipped < 40
    assert max(margins) < 1e-5
    many, wide = _flips(planted({"batch": 2, "nats": 3.0}), rows)
    assert many > 300
    assert max(wide) > 1


def _flips(config: Any, rows: list[Request]) -> tuple[int, list[float]]:
    flipped, margins = 0, []
    for one, other in zip(alone(config, rows), together(config, rows), strict=True):
        if one.token_ids != other.token_ids:
            flipped += 1
            pairs = zip(one.token_ids, other.token_ids, strict=True)
            place = next(n for n, (a, b) in enumerate(pairs) if a != b)
            assert one.top_logprobs is not None
            margins.append(one.top_logprobs[place][0][1] - one.top_logprobs[place][1][1])
    return flipped, margins


@pytest.mark.parametrize("unit", ["words", "characters"])
def test_a_shared_prefix_counts_in_company_only(unit: str) -> None:
    text = "x" if unit == "characters" else "x "
    config = planted({"prefix": 256, "ulps": 4.0}, unit=unit)
    for count, hit in ((255, False), (256, True)):
        rows = [ask(row, text=f"{text * count}{row}", logprobs=True) for row in range(2, 6)]
        assert bool(differing(together(config, rows), alone(config, rows))) is hit


def test_one_stranger_spoils_a_prefix_that_all_must_share() -> None:
    rows = [ask(row, text=f"{'x ' * 20}{row}", logprobs=True) for row in range(4)]
    crowd = [*rows, ask(9, text="something else", logprobs=True)]
    for company, hit in (("all", []), ("any", [0, 1, 2, 3])):
        config = planted({"prefix": 20, "company": company, "ulps": 4.0})
        assert differing(together(config, crowd), alone(config, crowd)) == hit


def test_images_end_a_shared_prefix_unless_they_are_the_same() -> None:
    config = planted({"prefix": 2, "ulps": 4.0})
    same = [ask(row, [picture()], text="What?", logprobs=True) for row in range(2)]
    others = [ask(row, [picture(8 + row, 8)], text="What?", logprobs=True) for row in range(2)]
    assert differing(together(config, same), alone(config, same)) == [0, 1]
    assert together(config, others) == alone(config, others)


def test_a_warm_beginning_differs_from_a_cold_one() -> None:
    config = planted({"warm": 3, "ulps": 4.0})
    engine = loaded(config)
    cold, warm, warmer = (told(engine, ROWS[:4]) for _ in range(3))
    assert cold == together(planted(), ROWS[:4])
    assert differing(warm, cold) == [0, 1, 2, 3]
    assert warmer == warm
    # Prompts shorter than that are not kept.
    short = [ask(1, text="a b", logprobs=True)]
    assert told(engine, short) == told(engine, short)
    assert told(loaded(config), ROWS[:4]) == cold


@pytest.mark.parametrize(
    ("effect", "hit"),
    [
        ({"place": 3}, range(3, 40)),
        ({"every": 5, "below": 2}, [row for row in range(40) if row % 5 < 2]),
        ({"length": 7}, range(40)),
        ({"length": 8}, []),
        ({"total": 280}, range(40)),
        ({"total": 281}, []),
        ({"dtypes": ["float32"]}, range(40)),
        ({"dtypes": ["bfloat16"]}, []),
        ({"observed": True}, range(40)),
        ({"observed": False}, []),
        ({"top": 2}, range(40)),
        ({"top": 3}, []),
        ({"served": 1}, []),
    ],
    ids=str,
)
def test_conditions(effect: dict[str, Any], hit: Any) -> None:
    assert differing(together(planted({"ulps": 4.0, **effect}), ROWS), together(planted(), ROWS)) == list(hit)


def test_an_effect_may_begin_late_in_an_answer_or_in_the_life_of_a_process() -> None:
    plain = together(planted(), ROWS)
    for one, other in zip(together(planted({"step": 4, "nats": 1.0}), ROWS), plain, strict=True):
        assert one.logprobs is not None
        assert other.logprobs is not None
        assert one.logprobs[:4] == other.logprobs[:4]
        assert one.logprobs[4] != other.logprobs[4]
    engine = loaded(planted({"served": 40, "ulps": 4.0}))
    assert told(engine, ROWS) == plain
    assert len(differing(told(engine, ROWS), plain)) == 40


def test_asking_for_log_probabilities_can_change_the_tokens() -> None:
    config = planted({"observed": True, "nats": 3.0})
    silent = alone(config, asked(range(40), logprobs=False, top_logprobs=0))
    heard = alone(config, ROWS)
    assert sum(one.token_ids != other.token_ids for one, other in zip(silent, heard, strict=True)) > 20
    assert all(response.logprobs is None for response in silent)


def test_an_effect_may_strike_a_share_of_the_rows() -> None:
    rows, plain = asked(range(400)), together(planted(), asked(range(400)))
    fixed = planted({"share": 0.1, "ulps": 4.0})
    first = differing(together(fixed, rows), plain)
    assert 20 < len(first) < 65
    assert differing(together(fixed, rows), plain) == first
    changing = planted({"share": 0.1, "ulps": 4.0, "noise": True})
    assert differing(together(changing, rows), plain) != differing(together(changing, rows), plain)


def test_effects_add_up() -> None:
    one, other = {"batch": 2, "ulps": 4.0}, {"batch": 3, "ulps": 4.0}
    both = together(planted(one, other), ROWS)
    assert len({tuple(map(repr, together(planted(*some), ROWS))) for some in ([], [one], [one, other])}) == 3
    assert together(planted(one, other), ROWS[:2]) == together(planted(one), ROWS[:2])
    assert differing(both, together(planted(one), ROWS))


# --- number formats and transport


def test_a_coarser_format_is_further_from_the_exact_one() -> None:
    exact = alone(planted(dtype="float64", near_ties=0.0), ROWS)
    far = [_distance(alone(planted(dtype=dtype, near_ties=0.0), ROWS), exact) for dtype in _FORMATS]
    assert all(one * 4 < other for one, other in pairwise(far))
    assert alone(planted(dtype="float32"), ROWS) == alone(planted(), ROWS)


_FORMATS = ("float32", "float16", "bfloat16")


def _distance(one: Any, other: Any) -> float:
    """Largest difference at the first token: it has the same condition in both."""
    return max(abs(a.logprobs[0] - b.logprobs[0]) for a, b in zip(one, other, strict=True))


def test_rounding_effects_vanish_in_the_exact_format() -> None:
    config = planted({"batch": 2, "ulps": 4.0}, dtype="float64")
    assert together(config, ROWS) == alone(config, ROWS)


@pytest.mark.parametrize(("rounding", "exact"), [({"decimals": 4}, 1e-4), ({"digits": 3}, None)])
def test_a_server_may_round_what_it_tells(rounding: dict[str, int], exact: float | None) -> None:
    plain, rounded = alone(planted(), ROWS), alone(planted(**rounding), ROWS)
    assert [r.token_ids for r in rounded] == [r.token_ids for r in plain]
    values = [value for response in rounded for value in response.logprobs or ()]
    values += [value for r in rounded for top in r.top_logprobs or () for _, value in top]
    if exact is None:
        assert all(value == float(f"{value:.3g}") for value in values)
    else:
        assert all(value == round(value, 4) for value in values)
    assert any(r.logprobs != p.logprobs for r, p in zip(rounded, plain, strict=True))


# --- mistakes


@pytest.mark.parametrize(
    ("numerics", "said"),
    [
        ({"shortest": 9, "longest": 8}, "1 <= shortest <= longest"),
        ({"vocabulary": 3}, "fewer than 16 tokens"),
        ({"settings": {"x": 1}}, "there is no planted knob 'x'"),
        ({"effects": [{"knobs": {"y": 1}}]}, "there is no planted knob 'y'"),
        ({"effects": [{"at_least": {"z": 1}}]}, "there is no planted knob 'z'"),
        ({"knobs": [{"name": "a.b"}]}, "has a dot"),
        ({"effects": [{"batches": 4}]}, "unknown field `batches`"),
    ],
)
def test_mistakes_are_named(numerics: dict[str, Any], said: str) -> None:
    from proctor.engines.base import EngineConfig

    assert said in reason(EngineConfig("scripted", options={"numerics": numerics}))


def test_a_number_format_that_there_is_not_is_named() -> None:
    assert "there is no number format 'float8'" in reason(planted(dtype="float8"))


def test_without_numerics_nothing_can_be_forced() -> None:
    from proctor.engines.base import EngineConfig

    (response,) = told(loaded(EngineConfig("scripted")), [ask(1, forced=(1,))])
    assert response.failure is not None
    assert response.failure.kind is ErrorKind.INFER_REJECTED
