from __future__ import annotations

import pickle
from typing import Any

import pytest

from proctor.spec.source import ColumnsSpec
from proctor.spec.task import ExactTaskSpec, RegexTaskSpec
from proctor.tasks import ParseError
from proctor.tasks.exact import ExactTask
from proctor.tasks.marking import mark
from proctor.tasks.regex import RegexTask
from tests.tasks.helpers import records, sample, summarise

COLUMNS = ColumnsSpec(target="y")


def exact(**settings: Any) -> ExactTask:
    return ExactTask.of(ExactTaskSpec(kind="exact", prompt="?", **settings), COLUMNS)


def regex(pattern: str, **settings: Any) -> RegexTask:
    return RegexTask.of(RegexTaskSpec(kind="regex", prompt="?", pattern=pattern, **settings), COLUMNS)


def correct(task: ExactTask | RegexTask, answer: str, target: Any) -> bool:
    scores = mark(task, answer, task.target(sample(y=target))).scores
    assert set(scores) == {"prediction", "correct"}
    return bool(scores["correct"])


def test_exact_compares_whole_texts() -> None:
    assert correct(exact(), " 42\n", 42)
    assert correct(exact(), "42", " 42 ")
    assert not correct(exact(strip=False), "42 ", "42")
    assert not correct(exact(), "Yes", "yes")
    assert correct(exact(ignore_case=True), "STRASSE", "straße")
    assert correct(exact(), '{"a":1}', {"a": 1})


def test_exact_never_reads_a_blank_answer() -> None:
    assert mark(exact(strip=False), " \n", "x").parse_error == "the answer is blank"


def test_regex_picks_the_first_group_or_the_whole_match() -> None:
    assert correct(regex(r"Answer:\s*(\d+)"), "So... Answer: 17 of 18", 17)
    assert correct(regex(r"\d+"), "about 17 of 18", "17")
    assert correct(regex(r"is (\w+)", ignore_case=True), "It IS Red", "red")
    assert not correct(regex(r"is (\w+)"), "it is Red", "red")


@pytest.mark.parametrize(("pattern", "text"), [("x", "y"), ("a(b)?", "a"), ("b*", "a")])
def test_regex_without_a_find_is_a_parse_failure(pattern: str, text: str) -> None:
    with pytest.raises(ParseError, match="the pattern"):
        regex(pattern).parse(text)


def test_without_target_only_the_prediction() -> None:
    assert mark(exact(), "a", exact().target(sample(y=None))).scores == {"prediction": "a"}
    assert ExactTask.of(ExactTaskSpec(kind="exact", prompt="?"), ColumnsSpec()).target(sample(y=1)) is None


def test_summary() -> None:
    task = regex(r"\d")
    _, metrics = summarise(task, records(task, [("1", "1"), ("2", "1"), ("x", "1"), (None, "1"), ("1", None)]))
    assert (metrics["accuracy"].value, metrics["accuracy"].n, metrics["accuracy"].of) == (0.5, 2, 5)
    assert metrics["parse_failures"].value == 0.25
    assert metrics["accuracy"].method == "wilson"


@pytest.mark.parametrize("task", [exact(), regex("a+")])
def test_survive_pickling(task: ExactTask | RegexTask) -> None:
    assert pickle.loads(pickle.dumps(task)) == task
