"""What was told and what has arrived, on disk."""

from __future__ import annotations

import math
from pathlib import Path

from proctor.storage.local import LocalFolder
from proctor.trackers.book import Book
from proctor.trackers.entries import numbers, texts


def book(run: Path) -> Book:
    return Book(LocalFolder(run), "jsonl")


def test_a_second_process_goes_on_with_numbers_steps_and_key(tmp_path: Path) -> None:
    first = book(tmp_path)
    assert first.is_new
    for step in (5, 9):
        first.write("metrics", 1.0, step, {"rows.done": step})
    first.acknowledge(1)
    second = book(tmp_path)
    assert not second.is_new
    assert (second.key, second.arrived, second.last) == (first.key, 1, 2)
    assert [entry.n for entry in second.unsent()] == [2]
    third = second.write("metrics", 2.0, 3, {"rows.done": 3})
    assert (third.n, third.step) == (3, 9)  # steps never fall
    assert [entry.n for entry in book(tmp_path).unsent()] == [2, 3]


def test_an_acknowledgement_never_goes_back(tmp_path: Path) -> None:
    kept = book(tmp_path)
    for _ in range(3):
        kept.write("metrics", 1.0, 0, {})
    kept.acknowledge(3)
    kept.acknowledge(1)
    assert book(tmp_path).arrived == 3


def test_a_line_cut_short_is_left_out_and_costs_no_other(tmp_path: Path) -> None:
    kept = book(tmp_path)
    kept.write("metrics", 1.0, 1, {"a": 1})
    with (tmp_path / "trackers" / "jsonl.jsonl").open("ab") as file:
        file.write(b'{"n":2,"kind":"met')
    again = book(tmp_path)
    again.write("metrics", 2.0, 2, {"a": 2})
    assert [entry.values["a"] for entry in book(tmp_path).entries()] == [1, 2]


def test_a_state_ahead_of_the_file_hides_nothing_new(tmp_path: Path) -> None:
    kept = book(tmp_path)
    kept.write("metrics", 1.0, 1, {"a": 1})
    kept.acknowledge(7)
    assert [entry.n for entry in book(tmp_path).unsent()] == []
    assert book(tmp_path).write("metrics", 1.0, 1, {"a": 1}).n == 8
    assert [entry.n for entry in book(tmp_path).unsent()] == [8]


def test_a_damaged_state_costs_a_second_sending_and_nothing_else(tmp_path: Path) -> None:
    book(tmp_path).write("metrics", 1.0, 1, {"a": 1})
    (tmp_path / "trackers" / "jsonl.state.json").write_text("{")
    assert [entry.n for entry in book(tmp_path).unsent()] == [1]


def test_what_is_nothing_is_left_out_and_long_texts_are_cut(tmp_path: Path) -> None:
    entry = book(tmp_path).write(
        "summary", 1.0, 1, {"a": None, "b": math.nan, "c": math.inf, "d": "x" * 5000, "e": True, "f": 0}
    )
    assert numbers(entry) == {"e": 1.0, "f": 0.0}
    assert {name: len(text) for name, text in texts(entry).items()} == {"d": 1000}
