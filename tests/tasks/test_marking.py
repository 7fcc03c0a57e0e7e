from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa
import pytest

from proctor.rows import ErrorKind, Failure, Prompt, Sample
from proctor.tasks import ParseError, Scores, Summary
from proctor.tasks.marking import mark


class Plain:
    """A task whose marks are what the test says."""

    columns: ClassVar = {"n": pa.int32(), "share": pa.float64(), "word": pa.string(), "path": pa.list_(pa.float64())}

    def __init__(self, scores: Any) -> None:
        self.scores = scores

    def prompt(self, sample: Sample) -> Prompt:
        return ()

    def target(self, sample: Sample) -> Any:
        return None

    def parse(self, text: str) -> Any:
        if text == "unreadable":
            raise ParseError("two\nlines " + "x" * 1_000)
        if text == "half":
            raise ParseError("half a character: \ud83d")
        if text == "exit":
            raise SystemExit(0)
        if text == "broken":
            raise RecursionError("too deep")
        return text

    def score(self, parsed: Any, target: Any) -> Scores:
        if isinstance(self.scores, Exception):
            raise self.scores
        return self.scores

    def summary(self, records: Any, expected: int) -> Summary:
        return Summary("n", ())


def test_good_scores_pass_through() -> None:
    scores = {"n": 3, "share": 0.5, "word": None, "path": [1, 2.5]}
    marked = mark(Plain(scores), "hello", None)
    assert marked == (scores, None, None)
    assert marked.parsed


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "\u200b\ufeff", "\x00\x1b", "\u00a0\u3000"])
def test_a_blank_answer_is_a_parse_error_whatever_the_task(text: str) -> None:
    marked = mark(Plain({"n": 1}), text, None)
    assert marked == ({}, "the answer is blank", None)
    assert not marked.parsed


def test_whatever_a_task_raises_can_be_stored() -> None:
    for text in ("half", "exit"):
        marked = mark(Plain({}), text, None)
        told = marked.parse_error or (marked.failure and marked.failure.message) or ""
        assert told in ("half a character: \\ud83d", "SystemExit: 0")
        assert pa.array([told], pa.string()).to_pylist() == [told]
    misfit = mark(Plain({"\ud83d": 1}), "hello", None).failure
    assert misfit is not None
    assert pa.array([misfit.message], pa.string()).null_count == 0


def test_a_parse_error_is_one_short_line() -> None:
    marked = mark(Plain({}), "unreadable", None)
    assert marked.failure is None
    assert marked.parse_error is not None
    assert marked.parse_error.startswith("two lines x")
    assert len(marked.parse_error) == 300


def test_other_exceptions_are_the_rows_failure() -> None:
    assert mark(Plain({}), "broken", None).failure == Failure(ErrorKind.SCORE_FAILED, "RecursionError: too deep")
    raised = mark(Plain(ZeroDivisionError("division by zero")), "x", None)
    assert raised == ({}, None, Failure(ErrorKind.SCORE_FAILED, "ZeroDivisionError: division by zero"))


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ({"m": 1}, "'m', which is not one of the task's columns (n, share, word, path)"),
        ({"n": "many"}, "'many' for 'n', which does not fit int32"),
        ({"n": 2**40}, "which does not fit int32"),
        ({"n": 1.5}, "1.5 for 'n', which does not fit int32"),
        ({"share": "1.5"}, "which does not fit double"),
        ({"word": 5}, "which does not fit string"),
        ({"word": "\ud800"}, "which does not fit string"),
        ({"path": 1.0}, "which does not fit list"),
        ([1], "score() returned list, not a dict"),
        (None, "score() returned NoneType, not a dict"),
    ],
)
def test_scores_that_do_not_fit_name_what_is_wrong(scores: Any, message: str) -> None:
    marked = mark(Plain(scores), "x", None)
    assert marked.scores == {}
    assert marked.failure is not None
    assert marked.failure.kind is ErrorKind.SCORE_FAILED
    assert message in marked.failure.message


def test_a_whole_float_fits_an_integer_column() -> None:
    assert mark(Plain({"n": 2.0}), "x", None).parsed
