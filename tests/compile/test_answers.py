"""Answers of two arms: which changed, and whether by a near-tie."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from proctor.compile.answers import as_probe, gate_answers
from proctor.compile.model import ProbeAnswers
from proctor.rows import ErrorKind, Failure, Message, Request, Response, Sampling, TextPart

NAMES = {0: "row 0", 1: "row 1"}


def answer(id_: int, text: str, tokens: Sequence[int] = (1, 2, 3), gap: float | None = 2.0) -> Response:
    """Every token leads by `gap` nats."""
    top = None if gap is None else tuple(((token, -0.5), (99, -0.5 - gap)) for token in tokens)
    return Response(id_, text, tuple(tokens), top_logprobs=top)


def arm(*answers: Response) -> Callable[[], list[Response]]:
    return lambda: list(answers)


def compared(eager: Sequence[Response], compiled: Sequence[Response], dtype: str = "float32") -> ProbeAnswers:
    return gate_answers("answers", NAMES, arm(*eager), arm(*compiled), dtype)


SAME = answer(0, "left")


def test_the_same_answers_pass() -> None:
    found = compared([SAME, answer(1, "right")], [answer(1, "right"), SAME])
    assert found == ProbeAnswers("answers", 2, (), steady_eager=True, steady_compiled=True)
    assert found.passed


@pytest.mark.parametrize(
    ("gap", "dtype", "passed"),
    [
        (1e-4, "float32", True),
        (0.2, "float32", False),
        (0.2, "bfloat16", True),
        (0.2, "float16", False),
        (0.0, "float8", True),
        (None, "bfloat16", False),
        (float("nan"), "bfloat16", False),
    ],
)
def test_a_changed_answer_passes_as_a_near_tie_only(gap: float | None, dtype: str, passed: bool) -> None:
    found = compared([SAME, answer(1, "right", (1, 2, 3), gap)], [SAME, answer(1, "left", (1, 7, 3))], dtype)
    assert found.changed == (("row 1", "right", "left"),)
    assert found.passed == passed
    assert found.margins == pytest.approx((gap,), nan_ok=True)
    if not passed:
        assert "row 1" in found.reason


def test_the_margin_is_that_where_the_answers_part() -> None:
    top = (((1, -0.1), (5, -4.1)), ((2, -0.6), (7, -0.65)), ((3, -0.1), (8, -9.0)))
    eager = Response(1, "abc", (1, 2, 3), top_logprobs=top)
    found = compared([SAME, eager], [SAME, answer(1, "axy", (1, 7, 9))], "bfloat16")
    assert found.margins == (pytest.approx(0.05),)
    longer = compared([SAME, eager], [SAME, answer(1, "a", (1,))], "bfloat16")
    assert longer.margins == (pytest.approx(0.05),)
    shorter = compared([SAME, eager], [SAME, answer(1, "abcd", (1, 2, 3, 4))], "bfloat16")
    assert shorter.margins == (None,)
    assert not shorter.passed


def test_failures_and_missing_answers_are_answers_that_changed() -> None:
    failed = Response.failed(1, Failure(ErrorKind.INFER_REJECTED, "too long"))
    found = compared([SAME, answer(1, "right")], [SAME, failed])
    assert found.changed == (("row 1", "right", "[infer.rejected: too long]"),)
    assert not found.passed
    assert compared([SAME, failed], [SAME, failed]).passed
    assert compared([SAME, answer(1, "right")], [SAME]).changed == (("row 1", "right", "[no answer]"),)


def test_an_arm_has_to_repeat_itself() -> None:
    def turning() -> Callable[[], list[Response]]:
        texts = iter(["left", "right", "left", "right"])
        return lambda: [answer(0, next(texts))]

    names = {0: "row 0"}
    found = gate_answers("answers", names, arm(SAME), turning(), "float32")
    assert (found.steady_eager, found.steady_compiled, found.passed) == (True, False, False)
    assert "does not repeat" in found.reason
    found = gate_answers("answers", names, turning(), arm(SAME), "float32")
    assert (found.steady_eager, found.steady_compiled, found.passed) == (False, True, True)


def test_probes_are_greedy_and_ask_for_the_runner_up() -> None:
    sampling = Sampling(max_tokens=5, temperature=0.7, top_p=0.5, seed=3)
    probe = as_probe(Request(4, (Message("user", (TextPart("?"),)),), sampling=sampling))
    assert (probe.sampling.temperature, probe.sampling.top_logprobs, probe.sampling.max_tokens) == (0, 2, 5)
    assert probe.sampling.logprobs
