"""Bisection finds the exact switch point, says nothing where effects come and go, and knows public switch points."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proctor.audit.thresholds import bisected, known, lengths_told, threshold


@given(st.integers(2, 5000), st.data())
def test_the_switch_point_is_found_exactly(switch: int, data: st.DataObject) -> None:
    above = data.draw(st.integers(switch, 10_000))
    below = data.draw(st.integers(1, switch - 1))
    assert bisected({below: False, above: True}, lambda value: value >= switch) == (switch - 1, switch)


def test_it_stops_where_no_more_may_be_tried() -> None:
    left = iter([True])
    assert bisected({1: False, 100: True}, lambda _: next(left, None)) == (1, 50)


def test_an_effect_that_comes_and_goes_has_no_threshold() -> None:
    assert bisected({1: False, 4: True, 8: False, 16: True}, lambda _: True) is None


def test_no_effect_or_nothing_without_it_is_no_threshold() -> None:
    assert bisected({1: False, 8: False}, lambda _: True) is None
    assert bisected({8: True}, lambda _: True) is None


def test_a_known_switch_point_is_named_with_its_source() -> None:
    found = threshold("batch", 16, 17)
    assert "cascade" in found.known_as
    assert "0.16.0" in found.known_as
    assert threshold("batch", 17, 18).known_as == ""


def test_a_prefix_is_known_by_the_length_of_the_whole_prompt() -> None:
    assert "shortest prefix" in threshold("prefix", 201, 202, tokens=(255, 256)).known_as
    assert threshold("prefix", 201, 202, tokens=(256, 257)).known_as == ""
    assert threshold("prefix", 255, 256).known_as == ""


def test_prompts_that_are_worked_on_together_are_known_by_their_tokens_together() -> None:
    assert "48271" in threshold("prefix", 122, 123, tokens=(127, 128), together=(254, 256)).known_as
    assert "48271" in threshold("batch", 3, 5, together=(207, 276)).known_as
    assert "48271" not in threshold("batch", 3, 5, together=(256, 300)).known_as


def test_where_only_some_values_exist_no_other_is_tried() -> None:
    tried = []

    def has_effect(value: int) -> bool:
        tried.append(value)
        return value >= 5

    assert bisected({1: False, 16: True}, has_effect, listed=[2, 4, 8, 16]) == (4, 8)
    assert set(tried) == {4, 8}
    assert bisected({2: False, 4: True}, has_effect, listed=[1, 2, 4]) == (2, 4)


def test_lengths_are_told_where_they_are_known() -> None:
    assert lengths_told(threshold("batch", 1, 2)) == ""
    assert lengths_told(threshold("batch", 1, 2, together=(580, 1160))) == " (580 against 1,160 tokens together)"
    prefix = threshold("prefix", 1, 2, tokens=(6, 7), together=(12, 14))
    assert lengths_told(prefix) == " (6 against 7 tokens a prompt, 12 against 14 tokens together)"


def test_every_known_point_has_a_source() -> None:
    assert all(entry["source"] and entry["what"] and entry["above"] > 0 for entry in known())
