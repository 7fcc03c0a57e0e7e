from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.tasks import ParseError
from proctor.tasks.driving_answer import (
    CURVATURES,
    MAX_METRES,
    OBSTACLES,
    SURFACES,
    DrivingAnswer,
    answer_of,
    read_answer,
)

WET = DrivingAnswer("wet", "left", "near", ((-0.1, 1.0), (-0.6, 2.0)))
GOOD = {"surface": "wet", "curvature": "left", "obstacle": "near", "waypoints": [[-0.1, 1.0], [-0.6, 2.0]]}
tenths = st.integers(-999, 999).map(lambda tenths: tenths / 10)
answers = st.builds(
    DrivingAnswer,
    st.sampled_from(SURFACES),
    st.sampled_from(CURVATURES),
    st.sampled_from(OBSTACLES),
    st.lists(st.tuples(tenths, tenths), min_size=1, max_size=8).map(tuple),
)


@given(answers)
def test_what_is_written_is_read_back(answer: DrivingAnswer) -> None:
    assert read_answer(str(answer)) == answer


@given(answers, st.sampled_from(["", " ", "\n", "\t  "]))
def test_json_is_read_back(answer: DrivingAnswer, space: str) -> None:
    data = {field: getattr(answer, field) for field in ("waypoints", "obstacle", "curvature", "surface")}
    assert read_answer(space + json.dumps(data, indent=1) + space) == answer


@pytest.mark.parametrize(
    "text",
    [
        "wet; curve left; obstacle near; waypoints (-0.1,1.0) (-0.6,2.0)",
        "  WET;Curve  LEFT ;\n obstacle near;Waypoints(-0.1,1.0)(-0.6 , +2.)\n",
        "wet ; curve left ; obstacle near ; waypoints (-.1, 1) ( -0.6,2 )",
        '{"surface": "Wet", "curvature": " left", "obstacle": "near", "waypoints": [[-0.1, 1], [-0.6, 2]]}',
    ],
)
def test_case_and_white_space_do_not_matter(text: str) -> None:
    assert read_answer(text) == WET


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "found 1 part"),
        ("I think the road is wet.", "found 1 part"),
        ("wet; curve left; obstacle near", "found 3 part"),
        ("wet; curve left; obstacle near; waypoints (0,1); and more", "found 5 part"),
        ("damp; curve left; obstacle near; waypoints (0,1)", "surface: 'damp' is not one of dry, wet, snow, night"),
        ("wet; left; obstacle near; waypoints (0,1)", "curvature: 'left' is not one of straight, curve left"),
        ("wet; straight; near; waypoints (0,1)", "obstacle: 'near' is not one of clear, obstacle far"),
        ("wet; straight; clear; waypoints", "waypoints: there are none"),
        ("wet; straight; clear; path (0,1)", r"waypoints: found 'path \(0,1\)'"),
        ("wet; straight; clear; waypoints (0,1) (2", r"expected \(lateral,ahead\), found '\(2'"),
        ("wet; straight; clear; waypoints (0,1,2)", "expected"),
        ("wet; straight; clear; waypoints (nan,1)", "expected"),
        ("wet; straight; clear; waypoints (0,1e5)", "expected"),
        (f"wet; straight; clear; waypoints (0,{'9' * 400})", "more than 10000 m away"),
        ("wet; straight; clear; waypoints (\u0661,\u0662)", "expected"),
        ("{", "starts like JSON"),
        ('{"a":' * 50_000, "starts like JSON"),
    ],
)
def test_anything_else_is_refused_with_a_short_reason(text: str, reason: str) -> None:
    with pytest.raises(ParseError, match=reason) as caught:
        read_answer(text)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"surface": None}, "surface: None is not one of"),
        ({"curvature": "curve left"}, "curvature: 'curve left' is not one of left, straight, right"),
        ({"obstacle": ["near"]}, "obstacle: "),
        ({"waypoints": []}, "there are none"),
        ({"waypoints": {}}, "not a list"),
        ({"waypoints": "ab"}, "not a list"),
        ({"waypoints": ["ab"]}, "not a .lateral, ahead. pair"),
        ({"waypoints": [[1]]}, "not a .lateral, ahead. pair"),
        ({"waypoints": [[True, 1]]}, "True is not a number"),
        ({"waypoints": [["1", 1]]}, "'1' is not a number"),
        ({"waypoints": [[float("nan"), 1]]}, "nan is more than"),
        ({"waypoints": [[0, -2 * MAX_METRES]]}, "more than 10000 m away"),
        ({"waypoints": [[0, 10**400]]}, "more than 10000 m away"),
        ({"confidence": 1}, "'confidence': not a part of an answer"),
    ],
)
def test_the_json_form_is_checked_as_strictly(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        answer_of(GOOD | change)


@pytest.mark.parametrize("value", [None, [], "wet", 3])
def test_other_data_is_no_answer(value: Any) -> None:
    with pytest.raises(ParseError, match="expected an object with surface, curvature"):
        answer_of(value)


def test_missing_keys_are_named() -> None:
    with pytest.raises(ParseError, match=r"^curvature, obstacle, waypoints: missing$"):
        read_answer('{"surface": "wet"}')


@given(st.text() | st.text("{}[]();:,.-+0123456789wetcurvlf \n\"'"))
def test_no_text_raises_anything_but_a_parse_error(text: str) -> None:
    try:
        read = read_answer(text)
    except ParseError:
        return
    assert read_answer(text.strip()) == read
