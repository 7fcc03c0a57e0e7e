from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.rows import ImagePart, Message, TextPart, UserError
from proctor.spec.source import ColumnsSpec
from proctor.spec.task import ExactTaskSpec
from proctor.tasks.prompting import Prompting, fill
from tests.tasks.helpers import sample


def prompting(prompt: str | None = None, *, system: str | None = None, column: str | None = None) -> Prompting:
    return Prompting.of(ExactTaskSpec(kind="exact", prompt=prompt, system=system), ColumnsSpec(prompt=column))


def test_system_then_images_then_text() -> None:
    row = sample(images=[b"1", b"2"], speed=30)
    messages = prompting("At {speed} km/h?", system="You drive.").prompt(row)
    assert messages == (
        Message("system", (TextPart("You drive."),)),
        Message("user", (ImagePart(), ImagePart(), TextPart("At 30 km/h?"))),
    )


def test_without_system_and_images_only_the_text() -> None:
    assert prompting("Hi").prompt(sample()) == (Message("user", (TextPart("Hi"),)),)


def test_a_rows_own_prompt_wins_and_is_taken_as_it_is() -> None:
    row = sample(ask="literal {speed} and {{")
    assert prompting("Other", column="ask").prompt(row)[0].parts == (TextPart("literal {speed} and {{"),)


def test_the_task_default_is_used_last() -> None:
    spec = ExactTaskSpec(kind="exact")
    assert Prompting.of(spec, ColumnsSpec(), "Default?").template == "Default?"
    with pytest.raises(UserError, match=r"^task\.prompt: not set"):
        Prompting.of(spec, ColumnsSpec())


def test_doubled_braces_are_literal() -> None:
    assert fill('{{"a": {a}}}', sample(a=1)) == '{"a": 1}'


def test_an_unknown_column_lists_those_that_exist() -> None:
    with pytest.raises(ValueError, match="asks for column 'spede'; the row has speed, weather"):
        prompting("{spede}").prompt(sample(speed=1, weather="wet"))


def test_a_null_is_not_written_as_none() -> None:
    with pytest.raises(ValueError, match="column 'speed', which is null"):
        prompting("{speed}").prompt(sample(speed=None))


def test_names_are_looked_up_whole_and_reach_no_attribute() -> None:
    row = sample(**{"a.b": "dotted", "a": object()})
    assert fill("{a.b}", row) == "dotted"
    for template in ("{a.__class__}", "{a[0]}"):
        with pytest.raises(ValueError, match="the row has"):
            fill(template, row)


@pytest.mark.parametrize("template", ["{", "}", "{a", "{}", "{a!r}", "{a:>9}", "{a:{b}}"])
def test_malformed_templates_are_refused_before_the_run(template: str) -> None:
    with pytest.raises(UserError, match=r"^task\.prompt: "):
        prompting(template)


@given(st.text())
def test_any_text_can_be_written_with_doubled_braces(text: str) -> None:
    assert fill(text.replace("{", "{{").replace("}", "}}"), sample()) == text
