"""What a driving answer says, and how it is written.

Two spellings are read, both without regard to case and white space::

    wet; curve left; obstacle near; waypoints (-0.1,1.0) (-0.6,2.0)
    {"surface": "wet", "curvature": "left", "obstacle": "near", "waypoints": [[-0.1, 1.0], [-0.6, 2.0]]}

* surface: ``dry``, ``wet``, ``snow`` or ``night``;
* curvature: ``straight``, ``curve left`` or ``curve right`` (in JSON ``straight``, ``left``, ``right``);
* obstacle: ``clear``, ``obstacle far`` or ``obstacle near`` (in JSON ``clear``, ``far``, ``near``);
* waypoints: one or more pairs (metres to the right, metres ahead), each within `MAX_METRES`.

The four parts stand in this order, each once, with nothing around them; the JSON object has exactly these four keys.
Any other text is a `ParseError`. Targets have the JSON form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proctor.tasks.base import ParseError

SURFACES = ("dry", "wet", "snow", "night")
CURVATURES = ("left", "straight", "right")
OBSTACLES = ("clear", "far", "near")
FIELDS = {"surface": SURFACES, "curvature": CURVATURES, "obstacle": OBSTACLES}
"""The closed fields and their values."""
MAX_METRES = 10_000.0
"""A waypoint farther away is no plan but noise, and one such row would own the mean."""

Waypoints = tuple[tuple[float, float], ...]

_KEYS = (*FIELDS, "waypoints")
_PHRASES = {
    "curvature": {"straight": "straight", "curve left": "left", "curve right": "right"},
    "obstacle": {"clear": "clear", "obstacle far": "far", "obstacle near": "near"},
}
_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_PAIR = re.compile(rf"\s*\(\s*({_NUMBER})\s*,\s*({_NUMBER})\s*\)")


@dataclass(frozen=True, slots=True)
class DrivingAnswer:
    """An answer or a target. Its text is the first of the two spellings, with one decimal."""

    surface: str
    curvature: str
    obstacle: str
    waypoints: Waypoints

    def __str__(self) -> str:
        curve = "straight" if self.curvature == "straight" else f"curve {self.curvature}"
        obstacle = "clear" if self.obstacle == "clear" else f"obstacle {self.obstacle}"
        points = " ".join(f"({lateral:+.1f},{ahead:.1f})" for lateral, ahead in self.waypoints)
        return f"{self.surface}; {curve}; {obstacle}; waypoints {points}"


def read_answer(text: str) -> DrivingAnswer:
    """Reads either spelling.

    Raises:
        ParseError: with a short reason.
    """
    text = text.strip()
    if not text.startswith("{"):
        return _read_phrases(text)
    try:
        return answer_of(json.loads(text))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ParseError("starts like JSON but is not") from error


def answer_of(value: Any) -> DrivingAnswer:
    """The answer in the JSON form's data.

    Raises:
        ParseError: with a short reason.
    """
    if not isinstance(value, Mapping):
        raise ParseError(f"expected an object with {', '.join(_KEYS)}, found {type(value).__name__}")
    if missing := [key for key in _KEYS if key not in value]:
        raise ParseError(f"{', '.join(missing)}: missing")
    if unknown := [key for key in value if key not in _KEYS]:
        raise ParseError(f"{_short(unknown[0])}: not a part of an answer")
    chosen = {field: _choice(field, value[field], {label: label for label in FIELDS[field]}) for field in FIELDS}
    points = value["waypoints"]
    if not isinstance(points, list | tuple):
        raise ParseError("waypoints: not a list of [lateral, ahead] pairs")
    return DrivingAnswer(**chosen, waypoints=_waypoints(points))


def _read_phrases(text: str) -> DrivingAnswer:
    parts = [" ".join(part.split()) for part in text.split(";")]
    if len(parts) != len(_KEYS):
        raise ParseError(f"expected surface; curvature; obstacle; waypoints, found {len(parts)} part(s)")
    surfaces = {label: label for label in SURFACES}
    surface = _choice("surface", parts[0], surfaces)
    curvature = _choice("curvature", parts[1], _PHRASES["curvature"])
    obstacle = _choice("obstacle", parts[2], _PHRASES["obstacle"])
    word, pairs = parts[3][: len("waypoints")], parts[3][len("waypoints") :]
    if word.lower() != "waypoints":
        raise ParseError(f"waypoints: found {_short(parts[3])}")
    return DrivingAnswer(surface, curvature, obstacle, _waypoints(_read_pairs(pairs)))


def _read_pairs(text: str) -> list[tuple[float, float]]:
    pairs: list[tuple[float, float]] = []
    position = 0
    while position < len(text):
        match = _PAIR.match(text, position)
        if match is None:
            raise ParseError(f"waypoints: expected (lateral,ahead), found {_short(text[position:].strip())}")
        pairs.append((float(match[1]), float(match[2])))
        position = match.end()
    return pairs


def _choice(field: str, value: Any, values: Mapping[str, str]) -> str:
    found = values.get(" ".join(value.lower().split())) if isinstance(value, str) else None
    if found is None:
        raise ParseError(f"{field}: {_short(value)} is not one of {', '.join(values)}")
    return found


def _waypoints(points: Any) -> Waypoints:
    if not points:
        raise ParseError("waypoints: there are none")
    return tuple(_point(point) for point in points)


def _point(point: Any) -> tuple[float, float]:
    if not isinstance(point, list | tuple) or len(point) != 2:
        raise ParseError(f"waypoints: {_short(point)} is not a [lateral, ahead] pair")
    lateral, ahead = (_metres(number) for number in point)
    return lateral, ahead


def _metres(number: Any) -> float:
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ParseError(f"waypoints: {_short(number)} is not a number")
    if not -MAX_METRES <= number <= MAX_METRES:  # not a number (nan) fails this, too
        raise ParseError(f"waypoints: {_short(number)} is more than {MAX_METRES:.0f} m away")
    return float(number)


def _short(value: Any, most: int = 40) -> str:
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"
