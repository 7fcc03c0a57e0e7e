from __future__ import annotations

import pytest

from proctor.audit.compare import compare, judged, nature
from proctor.audit.compare.nature import multiplier
from proctor.audit.model import Observation
from tests.audit.compare.made import decoded, row, rows


def reference() -> list[Observation]:
    return decoded("float64", single=False)


@pytest.mark.parametrize("noise", [1e-6, 1e-3, 1e-2])
@pytest.mark.parametrize("seed", range(3))
def test_two_arms_that_err_alike_are_rounding(noise: float, seed: int) -> None:
    ours, theirs = decoded("b", noise=noise, seed=2 * seed + 1), decoded("a", noise=noise, seed=2 * seed + 2)
    assert compare(ours, theirs).differs
    assert nature(ours, theirs, reference()).kind == "rounding"


@pytest.mark.parametrize("swapped", [False, True])
def test_an_arm_far_from_the_reference_gives_wrong_results(swapped: bool) -> None:
    sides = [decoded("b", noise=0.1, seed=3), decoded("a", noise=1e-3, seed=4)]
    found = judged(*(compare(side, reference()) for side in (sides[::-1] if swapped else sides)))
    assert found.kind == "wrong results"
    assert "b is far further" in found.sentence


def test_wrong_tokens_that_leave_the_rest_alone_are_wrong_results() -> None:
    """The log-probabilities before the flip are as good as the other arm's; the flip itself is not (vllm #22103)."""
    wrong = {(number, 5): 30.0 for number in range(8)}
    sides = decoded("b", noise=1e-3, seed=3, wrong=wrong), decoded("a", noise=1e-3, seed=4)
    found = judged(*(compare(side, reference()) for side in sides))
    assert found.kind == "wrong results"
    assert "b flips 8 rows that a does not" in found.sentence


def test_without_a_reference_nothing_is_known() -> None:
    ours, theirs = decoded("b", noise=1e-3, seed=3), decoded("a")
    assert nature(ours, theirs, []).kind == "unknown"
    assert judged(None, compare(ours, theirs)).kind == "unknown"
    text_only = compare(rows([[1]], "b"), rows([[1]], "float64"))
    assert judged(text_only, text_only).kind == "unknown"


def test_a_reference_that_neither_arm_is_near_to_tells_nothing() -> None:
    ours, theirs = decoded("b", noise=2.0, seed=3), decoded("a", noise=2.0, seed=4)
    assert nature(ours, theirs, reference()).kind == "unknown"


def test_arms_in_different_formats_are_judged_by_their_own_noise() -> None:
    exact, half = decoded("a", noise=1e-6, seed=4), decoded("b", noise=1e-2, seed=3)
    assert nature(half, exact, reference()).kind == "wrong results"  # as if both had the same format
    assert nature(half, exact, reference(), same_format=False).kind == "rounding"
    broken = decoded("b", noise=1e-2, seed=3, wrong={(number, 5): 30.0 for number in range(8)})
    assert nature(broken, exact, reference(), same_format=False).kind == "wrong results"
    lost = decoded("b", noise=2.0, seed=3)
    assert nature(lost, exact, reference(), same_format=False).kind != "rounding"


@pytest.mark.parametrize("replayed", [False, True])
def test_what_lies_behind_the_first_flip_counts_in_a_replay_only(replayed: bool) -> None:
    def side(arm: str, *moved: float) -> list[Observation]:
        """Rows of ten positions; a near-tie at the second, and from the fifth on what moved."""
        values = [-0.5 + moved[0], -0.69 + moved[0], -0.5, -0.5, *[-0.5 + moved[1]] * 6]
        close = ((2, -0.689), (1, -0.69)) if arm == "b" else ((1, -0.69), (2, -0.691))
        top = [close if place == 1 else ((1, value), (2, value - 3)) for place, value in enumerate(values)]
        chosen = [2 if arm == "b" and place == 1 and not replayed else 1 for place in range(10)]
        return [row(n, chosen, arm, logprobs=tuple(values), top=tuple(top)) for n in range(5)]

    found = nature(side("b", 0.001, 0.25), side("a", -0.001, 1e-6), side("exact", 0.0, 0.0), replayed=replayed)
    assert found.kind == ("wrong results" if replayed else "rounding")


def test_references_must_be_the_same() -> None:
    one = compare(decoded("a"), decoded("x"))
    other = compare(decoded("b"), decoded("y"))
    with pytest.raises(ValueError, match="references differ: x and y"):
        judged(one, other)


def test_few_numbers_leave_more_room() -> None:
    assert [multiplier(n) for n in (1, 10, 11, 500, 501)] == [10.0, 10.0, 8.0, 8.0, 3.0]


@pytest.mark.slow  # torch's compiler takes long to import
@pytest.mark.parametrize(("error", "other", "right"), [(1e-3, 2.9e-3, True), (1e-3, 3.2e-3, False), (1e-8, 1e-6, True)])
def test_the_rule_is_pytorchs(error: float, other: float, right: bool) -> None:
    """The same numbers through ``torch._dynamo.utils.same``, with its allclose out of the way."""
    torch = pytest.importorskip("torch")
    from torch._dynamo.utils import same

    exact = torch.linspace(-5, -1, 800, dtype=torch.float64)
    sign = torch.tensor([1.0, -1.0]).repeat(400)
    near, far = ((exact + size * sign) for size in (error, other))
    theirs = same(near.float(), far.float(), fp64_ref=exact, tol=1e-4, log_error=lambda *a, **k: None)
    assert theirs is right

    def observed(name: str, values: object) -> list[Observation]:
        return [
            Observation(arm=name, round=0, row_id=0, text="x", token_ids=(1,) * 800, logprobs=tuple(values.tolist()))
        ]

    ours = nature(
        observed("b", far.float().double()), observed("a", near.float().double()), observed("ref", exact)
    ).kind
    assert (ours == "rounding") is right
