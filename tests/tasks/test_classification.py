from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.rows import UserError
from proctor.spec.source import ColumnsSpec
from proctor.spec.task import ClassificationTaskSpec
from proctor.tasks import ParseError
from proctor.tasks.classification import ClassificationTask
from proctor.tasks.marking import mark
from tests.tasks.helpers import records, sample, summarise


def make(*labels: str, ignore_case: bool = True) -> ClassificationTask:
    spec = ClassificationTaskSpec(kind="classification", labels=list(labels), ignore_case=ignore_case)
    return ClassificationTask.of(spec, ColumnsSpec(target="y"))


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("car", "car"),
        ("It is a CAR.", "car"),
        ("car, certainly a car", "car"),
        ("a traffic light", "traffic light"),
        ("only a light", "light"),
        ("C++!", "C++"),
    ],
)
def test_the_one_label_that_is_named(text: str, label: str) -> None:
    assert make("car", "light", "traffic light", "C++").parse(text) == label


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("cart", "names none of the labels"),
        ("scar", "names none of the labels"),
        ("car or light", "names 2 labels: car, light"),
        ("", "names none of the labels"),
    ],
)
def test_none_or_two_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        make("car", "light").parse(text)


def test_case_can_matter() -> None:
    task = make("US", "us", ignore_case=False)
    assert task.parse("the US") == "US"
    assert task.parse("it is us") == "us"
    with pytest.raises(UserError, match=r"task\.labels: there more than once: us"):
        make("US", "us")
    with pytest.raises(UserError, match=r"task\.labels: a label is blank"):
        make("a", " ")


def test_letters_that_only_fold_together_still_give_a_label() -> None:
    assert make("yes", "no").parse("ye\u017f") == "yes"  # the long s


def test_targets_are_turned_into_labels() -> None:
    task = make("0", "1")
    assert task.target(sample(y=1.0)) == "1"
    assert task.target(sample(y=None)) is None
    assert mark(task, "1", "1").scores == {"label": "1", "label_target": "1", "label_correct": True}
    assert mark(task, "1", None).scores == {"label": "1"}
    failure = mark(task, "1", "2").failure
    assert failure is not None
    assert "the target '2' is not one of the labels" in failure.message


def test_the_default_question_names_the_labels_even_with_braces() -> None:
    (message,) = make("{a}", "b").prompt(sample())
    assert message.parts[0].text == "Answer with exactly one of these labels: {a}, b."


def test_summary_against_the_textbook_example() -> None:
    # scikit-learn's own example for f1_score: macro 0.26666..., accuracy 2/6.
    truth, said = (0, 1, 2, 0, 1, 2), (0, 2, 1, 0, 0, 1)
    task = make("0", "1", "2")
    rows = [(str(s), str(t)) for s, t in zip(said, truth, strict=True)]
    summary, metrics = summarise(task, records(task, rows))
    assert metrics["macro_f1"].value == pytest.approx(0.8 / 3)
    assert metrics["accuracy"].value == pytest.approx(2 / 6)
    assert summary.confusions[0].counts == ((2, 0, 0), (1, 0, 1), (0, 2, 0))
    assert summary.headline == "accuracy"


@given(st.sampled_from(["car", "truck", "bus", "none of these"]), st.text(" .,!?\n"), st.text(" .,!?\n"))
def test_a_label_is_found_between_any_punctuation(label: str, before: str, after: str) -> None:
    task = make("car", "truck", "bus", "none of these")
    assert task.parse(before + label + after) == label
    assert pickle.loads(pickle.dumps(task)).parse(label.upper()) == label
