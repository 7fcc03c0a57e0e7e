from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proctor.audit.compare import compare
from proctor.audit.model import Comparison, Observation
from tests.audit.compare.made import decoded, row, rows


def told(found: Comparison, words: str) -> bool:
    return any(words in remark for remark in found.remarks)


def bare(observations: list[Observation], **fields: object) -> list[Observation]:
    return [replace(observation, **fields) for observation in observations]


def test_an_innocent_arm_differs_in_nothing() -> None:
    found = compare(decoded("b"), decoded("a"))
    assert (found.differs, found.bitwise, found.digits, found.remarks, found.flips) == (False, True, None, (), ())
    assert found.logprob_equal.value == found.token_equal.value == found.text_equal.value == found.top1_equal.value == 1
    assert found.shift == (0.0,) * 4
    assert found.ulp == (0.0, 0.0)
    assert found.logprob_equal.of == 40 * 24
    assert found.logprob_equal.low == found.token_equal.low  # worth its 40 rows


def test_one_bit_of_one_token_is_seen_and_is_no_flip() -> None:
    theirs = decoded("a")
    logprobs = np.array(theirs[7].logprobs)
    place = int(np.argmin(logprobs))
    logprobs[place] = np.nextafter(np.float32(logprobs[place]), np.float32(0))
    ours = [replace(o, arm="b", logprobs=tuple(logprobs.tolist()) if o.row_id == 7 else o.logprobs) for o in theirs]
    found = compare(ours, theirs)
    assert (found.differs, found.logprob_equal.hits) == (True, 40 * 24 - 1)
    assert found.ulp == (0.0, 1.0)
    assert found.token_equal.value == 1.0


def test_rounding_in_transport_downgrades_bitwise() -> None:
    def sent(observations: list[Observation], decimals: int) -> list[Observation]:
        return [replace(o, logprobs=tuple(round(v, decimals) for v in o.logprobs)) for o in observations]

    found = compare(sent(decoded("b", noise=1e-9, seed=2), 5), sent(decoded("a"), 5))
    assert (found.bitwise, found.decimals) == (False, 5)
    assert told(found, "rounded to 5 decimals")
    assert found.logprob_equal.value > 0.99
    assert found.ulp == ()
    assert found.noise >= 5e-6  # no less than half the last decimal
    assert compare(sent(decoded("b"), 5), decoded("a")).differs is False


def test_positions_after_a_flip_are_not_compared() -> None:
    found = compare(
        [row(0, [1, 2, 9, 4], "b", logprobs=(-0.5, -0.25, -1.0, -2.0))],
        [row(0, [1, 2, 3, 4], "a", logprobs=(-0.5, -0.25, -0.125, -7.0))],
    )
    assert found.logprob_equal[:2] == (2, 2)
    assert found.shift == (0.0,) * 4
    assert found.survival.positions == (2,)
    assert (found.token_equal.hits, found.differs) == (0, True)


def test_replayed_tokens_are_compared_to_the_end() -> None:
    tops = [tuple(((1, -0.1), (2, -2.0)) for _ in range(4))] * 2
    changed = (*tops[0][:2], ((2, -0.6), (1, -0.9)), tops[0][3])
    lasting, plain = (-0.1, -0.1, -0.9, -0.3), (-0.1,) * 4
    ours = [row(0, [1] * 4, "b", logprobs=lasting, top=changed, score=0.0)]
    ours += [row(1, [1] * 4, "b", logprobs=plain, top=tops[1])]
    theirs = [row(number, [1] * 4, "a", logprobs=plain, top=tops[number], score=1.0) for number in (0, 1)]
    found = compare(ours, theirs, replayed=True)
    assert found.logprob_equal[:2] == (6, 8)
    assert found.top1_equal[:2] == (7, 8)
    assert found.token_equal[:2] == (1, 2)
    assert [(flip.row_id, flip.position) for flip in found.flips] == [(0, 2)]
    assert found.flips[0].margin == pytest.approx(1.9)
    assert (found.text_equal, found.parsed_equal, found.score_change) == (None, None, None)
    assert told(found, "replayed")


def test_every_position_at_which_another_token_leads_is_a_flip_of_a_replay() -> None:
    def told(*leads: int) -> tuple[tuple[tuple[int, float], ...], ...]:
        return tuple(((1, -0.1), (2, -2.0)) if lead == 1 else ((2, -0.3), (1, -1.1)) for lead in leads)

    theirs = [row(0, [1] * 4, "a", logprobs=(-0.1,) * 4, top=told(1, 1, 1, 1), parsed="x")]
    ours = [row(0, [1] * 4, "b", logprobs=(-0.1, -1.1, -0.105, -1.1), top=told(1, 2, 1, 2), parsed="y")]
    found = compare(ours, theirs, replayed=True)
    assert [(flip.position, flip.suspicious, flip.texts, flip.parsed_differs) for flip in found.flips] == [
        (1, True, ("", ""), None),
        (3, True, ("", ""), None),
    ]
    assert [flip.shift for flip in found.flips] == pytest.approx([0.005] * 2), "of positions where the same token leads"
    assert found.shift[-1] == pytest.approx(1.0), "of all positions"
    assert found.survival.positions == (1,)


def test_a_replay_that_lost_its_tokens_is_told_and_compared_up_to_there() -> None:
    found = compare(
        [row(0, [1, 9], "b", logprobs=(-0.5, -0.5))], [row(0, [1, 2], "a", logprobs=(-0.5, -0.5))], replayed=True
    )
    assert told(found, "did not keep the tokens of 1 pairs")
    assert found.logprob_equal[:2] == (1, 1)


def test_rows_that_are_not_numbers_are_kept_apart() -> None:
    """NaN of one batch size (unsloth #9708)."""
    theirs = decoded("a", rows=10)
    broken = [math.nan if k > 3 else v for k, v in enumerate(theirs[2].logprobs)]
    ours = [replace(o, arm="b", logprobs=tuple(broken) if o.row_id == 2 else o.logprobs) for o in theirs]
    found = compare(ours, theirs)
    assert found.logprob_equal[:2] == (9 * 24, 9 * 24)
    assert found.shift == (0.0,) * 4
    assert found.differs
    assert told(found, "not numbers in 1 rows, on one side only")
    both = compare(bare(ours, arm="c"), ours)
    assert not both.differs
    assert told(both, "on both sides")


def test_the_clamp_of_servers_is_told() -> None:
    found = compare([row(0, [1, 2], "b", logprobs=(-math.inf, -0.3))], [row(0, [1, 2], "a", logprobs=(-9999.0, -0.3))])
    assert not found.differs
    assert told(found, "-9999 stands for anything below it")
    assert found.shift == (0.0,) * 4  # of the one that is a number


def test_an_arm_without_logprobs_is_compared_by_its_tokens() -> None:
    """Asking for log-probabilities may change tokens (ollama #18163)."""
    theirs = decoded("a")
    ours = bare(theirs, arm="b", logprobs=None, top=None)
    found = compare(ours, theirs)
    assert (found.logprob_equal, found.top1_equal, found.differs) == (None, None, False)
    assert found.token_equal.value == 1.0
    assert told(found, "log-probabilities in 0 answers of one side and 40 of the other")
    changed = [replace(o, token_ids=(*o.token_ids[:-1], 99)) if o.row_id == 5 else o for o in ours]
    assert [flip.row_id for flip in compare(changed, theirs).flips] == [5]


def test_without_token_ids_the_texts_are_compared_by_characters() -> None:
    """Speculative decoding diverges at byte 27 (vllm #41758)."""
    text = "x" * 27
    found = compare([row(0, text=text + "ab", arm="b")], [row(0, text=text + "cd", arm="a")])
    assert (found.flips[0].position, found.flips[0].margin) == (27, None)
    assert found.token_equal is None
    assert found.text_equal[:2] == (0, 1)
    assert told(found, "positions count characters")


def test_without_token_ids_logprobs_of_equal_texts_are_compared() -> None:
    same = compare(
        [row(0, text="yes", arm="b", logprobs=(-0.5, -0.25))], [row(0, text="yes", arm="a", logprobs=(-0.5, -0.125))]
    )
    assert same.logprob_equal[:2] == (1, 2)
    assert told(same, "only where texts and counts are equal")
    other = compare([row(0, text="yes", arm="b", logprobs=(-0.5,))], [row(0, text="no", arm="a", logprobs=(-0.5,))])
    assert other.logprob_equal.of == 0


def test_ids_of_different_kinds_are_not_compared() -> None:
    found = compare([row(0, [-77, -12], "b", text="on")], [row(0, [5, 6], "a", text="on")])
    assert not found.differs
    assert found.token_equal is None
    mixed = compare([row(0, [-77], "b", text="on"), row(1, [3], "b")], [row(0, [5], "a", text="on"), row(1, [3], "a")])
    assert mixed.token_equal[:2] == (1, 1)
    assert told(mixed, "1 pairs have no token ids that can be compared")


def test_an_answer_that_ends_where_the_other_goes_on_has_parted() -> None:
    top = (((1, -0.1), (2, -2.0)),) * 2 + (((3, -0.5), (0, -0.7)),)
    found = compare(
        [row(0, [1, 1], "b", finish_reason="stop")], [row(0, [1, 1, 3], "a", finish_reason="stop", top=top)]
    )
    assert found.flips[0].position == 2
    assert found.flips[0].margin == pytest.approx(0.2)
    assert found.differs


def test_an_answer_that_was_cut_says_nothing_of_what_follows() -> None:
    found = compare(
        [row(0, [1, 1], "b", finish_reason="length", score=0.0)],
        [row(0, [1, 1, 3], "a", finish_reason="stop", score=1.0)],
    )
    assert (found.flips, found.token_equal[:2], found.text_equal.of, found.score_change) == ((), (1, 1), 0, None)
    assert not found.differs
    assert told(found, "a limit cut 1 pairs")


def test_ending_for_another_reason_is_a_difference() -> None:
    found = compare([row(0, [1], "b", finish_reason="length")], [row(0, [1], "a", finish_reason="stop")])
    assert found.differs
    assert told(found, "1 pairs ended for different reasons")
    assert not compare([row(0, [1], "b", finish_reason=None)], [row(0, [1], "a", finish_reason="stop")]).differs


def test_what_the_task_reads_is_compared_where_there_is_a_task() -> None:
    assert compare(rows([[1]], "b"), rows([[1]], "a")).parsed_equal is None
    found = compare(
        [row(0, [1], "b", parsed="1"), row(1, [2], "b", parsed=None)],
        [row(0, [9], "a", parsed="1"), row(1, [2], "a", parsed="2")],
    )
    assert found.parsed_equal[:2] == (1, 2)
    assert found.text_equal[:2] == (1, 2)


def test_logprobs_that_do_not_fit_their_tokens_are_left_out() -> None:
    """The number of values changes with what was asked for (vllm #44319)."""
    found = compare([row(0, [1, 2], "b", logprobs=(-0.5,))], [row(0, [1, 2], "a", logprobs=(-0.5, -0.5))])
    assert found.logprob_equal.of == 0
    assert not found.differs
    assert told(found, "1 answers have not as many log-probabilities as tokens")


def test_half_precision_is_told() -> None:
    values = [-0.73046875, -1.5, -0.2578125, -3.296875, -0.0263671875, -7.9375, -0.119140625, -12.25]
    found = compare([row(0, range(8), "b", logprobs=tuple(values))], [row(0, range(8), "a", logprobs=tuple(values))])
    assert found.bitwise
    assert told(found, "bfloat16")


def test_several_rounds_are_compared_with_the_rows_as_units() -> None:
    ours = [o for number in range(5) for o in rows([[1]] * 19 + [[2]], "b", number)]
    theirs = [o for number in range(5) for o in rows([[1]] * 20, "a", number)]
    found = compare(ours, theirs)
    assert (found.rows, found.token_equal[:2]) == (100, (95, 100))
    assert found.token_equal.low < 0.80
    assert len(found.flips) == 5
    assert {flip.round for flip in found.flips} == set(range(5))


ANSWER = st.tuples(
    st.lists(st.integers(-1, 2), max_size=6),
    st.sampled_from(["stop", "length", None]),
    st.booleans(),
    st.lists(st.sampled_from([-0.5, -0.1, math.nan, -math.inf, -9999.0, 0.0]), min_size=6, max_size=6),
    st.sampled_from([None, 0.0, 1.0, 0.25]),
    st.booleans(),
)


def _observed(arm: str, answers: list) -> list[Observation]:
    return [
        row(
            number,
            tokens,
            arm,
            finish_reason=finish,
            logprobs=tuple(logprobs[: len(tokens)]) if with_logprobs else None,
            top=tuple(((token, logprobs[0]), (token + 1, -0.3)) for token in tokens) if with_logprobs else None,
            score=score,
            failure=("infer.crashed", "gone") if failed else None,
        )
        for number, (tokens, finish, with_logprobs, logprobs, score, failed) in enumerate(answers)
    ]


@given(st.lists(ANSWER, max_size=6), st.lists(ANSWER, max_size=6), st.booleans())
def test_any_answers_can_be_compared_and_counts_add_up(ours: list, theirs: list, replayed: bool) -> None:
    found = compare(_observed("b", ours), _observed("a", theirs), replayed=replayed, arm="b", against="a")
    assert found.rows + found.failed == max(len(ours), len(theirs))
    for rate in (found.token_equal, found.text_equal, found.logprob_equal, found.top1_equal, found.parsed_equal):
        if rate is not None:
            assert 0 <= rate.low <= (rate.value if rate.of else 0.5) <= rate.high <= 1
    assert list(found.survival.surviving) == sorted(found.survival.surviving, reverse=True)
    assert replayed or len(found.flips) <= found.rows
    if found.flips:
        assert found.differs


@given(st.lists(ANSWER, min_size=1, max_size=6))
def test_anything_compared_with_itself_differs_in_nothing(answers: list) -> None:
    found = compare(_observed("b", answers), _observed("a", answers))
    assert not found.differs
    assert found.flips == ()


@given(st.lists(ANSWER, min_size=1, max_size=5), st.lists(ANSWER, min_size=1, max_size=5))
def test_whether_arms_differ_does_not_depend_on_which_is_the_reference(ours: list, theirs: list) -> None:
    one, other = _observed("b", ours), _observed("a", theirs)
    there, back = compare(one, other), compare(other, one)
    assert there.differs == back.differs
    assert there.token_equal == back.token_equal
    assert there.logprob_equal == back.logprob_equal
    assert there.shift == back.shift
    assert {(f.row_id, f.position) for f in there.flips} == {(f.row_id, f.position) for f in back.flips}
