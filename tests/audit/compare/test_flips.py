from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.audit.compare import compare, contradicted, suspicious, suspicious_flips
from proctor.audit.compare.leaders import NO_TOKEN, alike, leader, ranked
from proctor.audit.model import Flip
from tests.audit.compare.made import decoded, row


def flip(margin: float | None, shift: float | None = None, jump: float | None = None) -> Flip:
    return Flip(row_id=0, round=0, position=3, margin=margin, shift=shift, jump=jump, texts=("", ""))


@pytest.mark.parametrize(
    ("margin", "shift", "noise", "verdict"),
    [
        (1e-6, 1e-5, 1e-5, False),  # a near-tie
        (0.5, 1e-5, 1e-5, True),  # a bug
        (0.02, 0.011, 0.001, False),  # a noisy row explains its own flip
        (0.02, None, 0.011, False),  # the first token flips: the noise of the others counts
        (0.02, None, 0.009, True),
        (0.0, None, 0.0, False),  # a tie may go either way without any noise
        (1e-9, None, 0.0, True),
        (None, 1e-5, 1e-5, None),
        (0.5, None, None, None),
    ],
)
def test_a_margin_above_twice_the_noise_is_suspicious(
    margin: float | None, shift: float | None, noise: float | None, verdict: bool | None
) -> None:
    assert suspicious(flip(margin, shift), noise) is verdict


def test_a_flip_that_the_scores_deny() -> None:
    assert contradicted(flip(0.5, jump=0.2)) is True
    assert contradicted(flip(0.5, jump=0.25)) is False
    assert contradicted(flip(0.5)) is None
    assert contradicted(flip(None, jump=1.0)) is None


@pytest.mark.parametrize("noise", [1e-4, 1e-2, 5e-2])
def test_noise_flips_near_ties_and_is_not_accused(noise: float) -> None:
    accused = flipped = 0
    for seed in range(4):
        found = compare(decoded("b", noise=noise, seed=seed + 1), decoded("a"))
        flipped += len(found.flips)
        accused += len(suspicious_flips(found))
        assert all(contradicted(flip) is False for flip in found.flips)
    assert flipped > 0 or noise < 1e-3
    assert accused <= 0.02 * flipped


@pytest.mark.parametrize("noise", [1e-5, 1e-3, 1e-2])
def test_a_wrong_token_amid_noise_is_named(noise: float) -> None:
    wrong = {(3, 10): 30.0, (17, 2): 30.0}
    found = compare(decoded("b", noise=noise, seed=9, wrong=wrong), decoded("a"))
    named = {(flip.row_id, flip.position) for flip in suspicious_flips(found)}
    assert named == set(wrong)
    assert found.flips[0].suspicious
    assert any("2 of" in remark and "above twice the noise" in remark for remark in found.remarks)


def test_flips_come_largest_margin_first_with_both_answers() -> None:
    def one(number: int, token: int, gap: float, arm: str) -> object:
        top = (((1, -0.1), (2, -0.1 - gap)),)
        return row(number, [token], arm, logprobs=(-0.1,), top=top, parsed=str(token))

    ours = [one(0, 2, 1e-6, "b"), one(1, 2, 0.5, "b"), one(2, 1, 0.5, "b"), row(3, [7], "b")]
    theirs = [one(0, 1, 1e-6, "a"), one(1, 1, 0.5, "a"), one(2, 1, 0.5, "a"), row(3, [8], "a")]
    found = compare(ours, theirs)
    assert [flip.row_id for flip in found.flips] == [1, 0, 3]
    assert [flip.margin for flip in found.flips[:2]] == pytest.approx([0.5, 1e-6])
    assert found.flips[2].margin is None
    assert found.flips[0].texts == ("2", "1")
    assert found.flips[0].parsed_differs is True
    assert found.flips[2].parsed_differs is None


def test_jump_and_shift_are_those_at_and_before_the_flip() -> None:
    tops = [((5, -0.1), (6, -2.4)), ((1, -0.70), (2, -0.71))]
    moved = [((5, -0.15), (6, -2.4)), ((2, -0.69), (1, -0.72))]
    found = compare(
        [row(0, [5, 2], "b", logprobs=(-0.15, -0.69), top=tuple(moved))],
        [row(0, [5, 1], "a", logprobs=(-0.1, -0.70), top=tuple(tops))],
    )
    assert found.flips[0].position == 1
    assert found.flips[0].margin == pytest.approx(0.01)
    assert found.flips[0].shift == pytest.approx(0.05)
    assert found.flips[0].jump == pytest.approx(0.02)
    assert found.logprob_equal[:2] == (0, 1)  # the log-probabilities of two different tokens are not compared
    assert found.top1_equal[:2] == (1, 2)


def test_leader_of_ties_duplicates_and_lists_out_of_order() -> None:
    assert leader(((3, -0.5), (4, -1.0))) == (3, 0.5, frozenset())
    assert leader(((4, -1.0), (3, -0.5), (9, -2.0))) == (3, 0.5, frozenset())  # the sampled token in front
    assert leader(((3, -0.5), (3, -0.5), (4, -1.0)))[:2] == (3, 0.5)  # named twice
    assert leader(((7, -0.5), (3, -0.5), (4, -1.0))) == (3, 0.0, frozenset({3, 7}))
    assert leader(())[0] == NO_TOKEN
    assert leader(((3, -0.5),))[0] == 3
    assert math.isnan(leader(((3, -0.5),)).margin)
    assert leader(((3, math.nan), (4, -1.0)))[0] == 4
    assert ranked(((3, math.nan), (3, -1.0))) == ((3, -1.0),)


def test_ties_lead_alike_if_they_share_a_token() -> None:
    tied, one, other = leader(((7, -0.5), (3, -0.5))), leader(((7, -0.5), (3, -0.6))), leader(((9, -0.5), (3, -0.6)))
    assert alike(tied, one) is True
    assert alike(one, other) is False
    assert alike(one, leader(())) is None


@given(st.lists(st.tuples(st.integers(0, 6), st.floats(-9, 0)), max_size=8).map(tuple))
def test_leader_does_not_depend_on_the_order_of_the_list(top: tuple[tuple[int, float], ...]) -> None:
    one, other = leader(top), leader(top[::-1])
    assert one.token == other.token
    assert one.ties == other.ties
    if top:
        assert dict(ranked(top))[one.token] == max(logprob for _, logprob in top)
