"""Word by word: nothing is lost, nothing is invented, and no text takes long."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.view.worddiff import MOST_STEPS, Piece, word_diff

_TEXTS = st.lists(st.sampled_from(["dry", "wet", " ", "7", "0.25", "(", "é", "\n"]), max_size=30).map("".join)


@settings(max_examples=200, deadline=None)
@given(_TEXTS, _TEXTS)
def test_the_pieces_are_both_texts(before: str, after: str) -> None:
    pieces = word_diff(before, after)
    assert "".join(piece.text for piece in pieces if piece.kind != "new") == before
    assert "".join(piece.text for piece in pieces if piece.kind != "gone") == after
    assert all(one.kind != two.kind for one, two in itertools.pairwise(pieces))
    assert ({piece.kind for piece in pieces} <= {"same"}) == (before == after)


def test_what_differs_is_found_between_what_is_the_same() -> None:
    assert word_diff("dry; curve left; clear", "dry; straight; obstacle far; clear") == [
        Piece("same", "dry; "),
        Piece("gone", "curve left"),
        Piece("new", "straight; obstacle far"),
        Piece("same", "; clear"),
    ]
    assert word_diff("(-0.2,1.0)", "(-0.2,1.5)")[1:3] == [Piece("gone", "1.0"), Piece("new", "1.5")]


def test_texts_with_little_in_common_are_replaced_whole() -> None:
    many = MOST_STEPS
    pieces = word_diff("a " + "x y " * many + "z", "a " + "y q r " * many + "z")
    assert [piece.kind for piece in pieces] == ["same", "gone", "new", "same"]
    assert (pieces[0].text, pieces[-1].text[-1]) == ("a ", "z")
