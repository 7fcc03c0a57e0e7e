from __future__ import annotations

from typing import Any

import pytest

from tests.engines.tiny import ask

pytestmark = pytest.mark.model
torch: Any = pytest.importorskip("torch")
decoding: Any = pytest.importorskip("proctor.engines.row_decoding")

SCORES = [3.0, 2.0, 1.0, 0.0, -9.0]


def draws(count: int, **sampling: Any) -> list[int]:
    """What `count` rows with different ids choose from the same scores."""
    rows = [decoding.new_row(ask(id_, **sampling), "cpu") for id_ in range(count)]
    return decoding.Choose(rows)(None, torch.tensor([SCORES] * count)).argmax(-1).tolist()


def test_a_greedy_row_is_left_alone():
    scores = torch.tensor([SCORES])
    assert decoding.Choose([decoding.new_row(ask(1), "cpu")])(None, scores) is scores


def test_draws_follow_the_softmax():
    shares = torch.tensor(SCORES).softmax(-1)
    found = torch.tensor(draws(20_000, temperature=1.0)).bincount(minlength=5) / 20_000
    assert (found - shares).abs().max() < 0.015


def test_temperature_sharpens():
    cold = torch.tensor(draws(2_000, temperature=0.25)).bincount(minlength=5) / 2_000
    assert cold[0].item() == pytest.approx((torch.tensor(SCORES) / 0.25).softmax(-1)[0].item(), abs=0.02)


def test_top_p_keeps_the_smallest_set_that_holds_it():
    # Shares are about .64 .24 .09 .03 .00: two tokens hold .8, one is enough for .6.
    assert set(draws(500, temperature=1.0, top_p=0.8)) == {0, 1}
    assert set(draws(500, temperature=1.0, top_p=0.6)) == {0}


def test_a_draw_depends_on_seed_and_row_only():
    alone = decoding.Choose([decoding.new_row(ask(7, temperature=1.0), "cpu")])
    beside = decoding.Choose([decoding.new_row(ask(id_, temperature=1.0), "cpu") for id_ in (3, 7)])
    first = alone(None, torch.tensor([SCORES]))[0]
    assert torch.equal(first, beside(None, torch.tensor([SCORES] * 2))[1])
    other_seed = decoding.Choose([decoding.new_row(ask(7, temperature=1.0, seed=1), "cpu")])
    assert not torch.equal(first, other_seed(None, torch.tensor([SCORES]))[0])


def test_a_forced_row_chooses_what_it_is_told_to():
    rows = [decoding.new_row(ask(id_, forced=(4, 1)), "cpu") for id_ in range(2)]
    rows[1].token_ids.append(4)
    assert decoding.Choose(rows)(None, torch.tensor([SCORES] * 2)).argmax(-1).tolist() == [4, 1]


def test_a_forced_row_needs_no_draw_even_where_it_is_hot():
    row = decoding.new_row(ask(1, forced=(3,), temperature=1.0), "cpu")
    assert row.generator is None
    assert decoding.Choose([row])(None, torch.tensor([SCORES])).argmax(-1).tolist() == [3]


def test_the_scores_themselves_are_not_changed():
    scores = torch.tensor([SCORES])
    choose = decoding.Choose([decoding.new_row(ask(7, temperature=1.0), "cpu")])
    choose(None, scores)
    assert scores.tolist() == [SCORES]
    assert choose.scores is scores
