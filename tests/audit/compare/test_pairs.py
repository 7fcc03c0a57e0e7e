from __future__ import annotations

import pytest

from proctor.audit.compare import compare, compare_repeats
from proctor.audit.compare.pairs import ALL_PAIRS_UP_TO, pair_repeats, pair_rounds
from tests.audit.compare.made import row, rows


def test_each_round_meets_the_same_round_of_the_other() -> None:
    ours = rows([[1], [2]], "a", 1) + rows([[1], [2]], "a", 0)
    theirs = rows([[1], [2]], "b", 0) + rows([[1], [2]], "b", 1) + rows([[1], [2]], "b", 2)
    pairing = pair_rounds(ours, theirs)
    assert [(p.arm.round, p.against.round, p.arm.row_id, p.against.row_id) for p in pairing.pairs] == [
        (0, 0, 0, 0),
        (0, 0, 1, 1),
        (1, 1, 0, 0),
        (1, 1, 1, 1),
    ]
    assert (pairing.arm, pairing.against, pairing.failed, pairing.remarks) == ("a", "b", 0, ())


def test_a_round_without_its_like_meets_the_nearest_and_says_so() -> None:
    pairing = pair_rounds(rows([[1]], "a", 7), rows([[1]], "b", 0) + rows([[1]], "b", 3))
    assert pairing.pairs[0].against.round == 3
    assert pairing.remarks == ("round 7 is compared with round 3",)


def test_a_side_without_an_answer_is_counted_and_told() -> None:
    ours = [row(0, [1]), row(1, failure=("infer.crashed", "gone"), text=None), row(2, [1])]
    theirs = [row(0, [1], "b"), row(1, [1], "b"), row(3, [1], "b")]
    found = compare(ours, theirs)
    assert (found.rows, found.failed) == (1, 3)
    assert any("3 pairs are not compared" in remark and "2 in a and 1 in b" in remark for remark in found.remarks)
    assert not found.differs


def test_an_empty_answer_is_an_answer() -> None:
    found = compare([row(0)], [row(0, [5], "b")])
    assert (found.rows, found.failed, found.differs) == (1, 0, True)
    assert found.flips[0].position == 0


@pytest.mark.parametrize("given", [([], []), (rows([[1]]), []), ([], rows([[1]], "b"))])
def test_nothing_to_compare_is_never_equality(given: tuple[list, list]) -> None:
    found = compare(*given, arm="a", against="b")
    assert (found.arm, found.against, found.rows, found.differs) == ("a", "b", 0, False)
    assert found.token_equal.of == found.text_equal.of == 0
    assert (found.token_equal.low, found.token_equal.high, found.token_equal.value) == (0.0, 1.0, None)
    assert "nothing could be compared" in found.remarks
    assert found.failed == max(map(len, given))


def test_a_row_twice_in_a_round_or_two_arms_on_a_side_is_refused() -> None:
    with pytest.raises(ValueError, match="row 0 twice in round 0 of a"):
        compare([row(0, [1]), row(0, [1])], [])
    with pytest.raises(ValueError, match="several arms: a, b"):
        compare([row(0, [1]), row(1, [1], "b")], [])


def test_repeats_are_all_pairs_of_sittings() -> None:
    pairing = pair_repeats([row(0, [1], "a", number) for number in range(4)])
    assert [(p.arm.round, p.against.round) for p in pairing.pairs] == [(1, 0), (2, 0), (3, 0), (2, 1), (3, 1), (3, 2)]


def test_arms_that_ask_alike_are_sittings_of_one_another() -> None:
    found = compare_repeats(rows([[1]], "baseline") + rows([[2]], "repeat"))
    assert (found.arm, found.against, found.rows, found.differs) == ("repeat", "baseline", 1, True)


def test_very_many_sittings_meet_the_first_and_the_one_before() -> None:
    many = ALL_PAIRS_UP_TO + 5
    pairing = pair_repeats([row(0, [1], "a", number) for number in range(many)])
    met = [(p.arm.round, p.against.round) for p in pairing.pairs]
    assert len(met) == len(set(met)) == 2 * many - 3
    assert {arm for arm, _ in met} == set(range(1, many))
    assert "first and with the one before" in pairing.remarks[0]
