"""Synthetic driving scenes: everything about a scene is a pure function of its number.

A scene is what a front camera would see for one to three frames: a road that bends, a surface, perhaps an obstacle in
the lane. Because the number decides all of it, the same data set can be drawn again anywhere, a test can ask for any
single row, and training and evaluation stay apart by drawing from different ranges of numbers.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from proctor.demo import palette

Frame = NDArray[np.uint8]

WIDTH: Final = 128
HEIGHT: Final = 96
PROMPT: Final = "Describe the road and plan the path."
SYSTEM_TEXT: Final = "You drive a car and answer in one line."
SURFACES: Final = ("dry", "wet", "snow", "night")
OBSTACLES: Final = ("clear", "far", "near")
CURVATURES: Final = tuple(range(-8, 9))
"""Curvature in tenths: negative bends to the left."""
MAX_FRAMES: Final = 3
JPEG_QUALITY: Final = 92

_HORIZON = 34
_BEND_PX = 62.0
CAMERA: Final[dict[str, Any]] = {
    "image": -1,
    "size": [WIDTH, HEIGHT],
    "focal": [50, 50],
    "centre": [WIDTH / 2, _HORIZON],
    "above_road": 1.2,
    "ahead": -0.5,
}
"""The camera that comes nearest to how the scenes are drawn: within 6 pixels of the middle of the road."""
_STRAIGHT_TENTHS = 1  # |k| <= 0.1 is called straight
_FAR_T, _NEAR_T, _APPROACH_T = 0.22, 0.62, 0.03


@dataclass(frozen=True, slots=True)
class Scene:
    """What is true of one scene; `draw` shows it, `answer` says it, `target` states it as data."""

    number: int
    surface: str
    curvature_tenths: int
    obstacle: str
    frames: int

    @property
    def curvature(self) -> str:
        """`left`, `straight` or `right`."""
        if abs(self.curvature_tenths) <= _STRAIGHT_TENTHS:
            return "straight"
        return "left" if self.curvature_tenths < 0 else "right"

    @property
    def waypoints(self) -> list[tuple[float, float]]:
        """Where to be: (metres to the right, metres ahead). Two points when the obstacle is near, else four."""
        steps = 2 if self.obstacle == "near" else 4
        return [(_lateral_tenths(self.curvature_tenths, i) / 10, float(i)) for i in range(1, steps + 1)]


def scene(number: int) -> Scene:
    """The scene with this number (0 or more)."""
    rng = np.random.default_rng([number, 0])
    return Scene(
        number=number,
        surface=SURFACES[rng.integers(len(SURFACES))],
        curvature_tenths=int(rng.choice(CURVATURES)),
        obstacle=OBSTACLES[rng.integers(len(OBSTACLES))],
        frames=int(rng.integers(1, MAX_FRAMES + 1)),
    )


def answer(scene: Scene) -> str:
    """The one correct text, e.g. `wet; curve left; obstacle near; waypoints (-0.2,1.0) (-0.6,2.0)`."""
    curve = "straight" if scene.curvature == "straight" else f"curve {scene.curvature}"
    obstacle = "clear" if scene.obstacle == "clear" else f"obstacle {scene.obstacle}"
    points = " ".join(f"({lateral:+.1f},{ahead:.1f})" for lateral, ahead in scene.waypoints)
    return f"{scene.surface}; {curve}; {obstacle}; waypoints {points}"


def target(scene: Scene) -> dict[str, Any]:
    """The ground truth as JSON-ready data; waypoints are rounded as in the text, so a correct answer has ADE 0."""
    return {
        "surface": scene.surface,
        "curvature": scene.curvature,
        "obstacle": scene.obstacle,
        "waypoints": [list(point) for point in scene.waypoints],
    }


def draw(scene: Scene) -> list[Frame]:
    """The scene's frames in time order, each (HEIGHT, WIDTH, 3) uint8 RGB."""
    rng = np.random.default_rng([scene.number, 1])
    horizon = _HORIZON + int(rng.integers(-2, 3))
    phase = float(rng.random())
    body = palette.OBSTACLE_BODIES[int(rng.integers(len(palette.OBSTACLE_BODIES)))]
    frames = []
    for index in range(scene.frames):
        road = _Road.bend(horizon, scene.curvature_tenths / 10, jitter=float(rng.normal(0.0, 0.8)))
        canvas = _paint_road(road, palette.COLOURS[scene.surface], phase + 0.35 * index)
        if scene.obstacle != "clear":
            start = _FAR_T if scene.obstacle == "far" else _NEAR_T
            _paint_obstacle(canvas, road, start + _APPROACH_T * index, body, dim=scene.surface == "night")
        frames.append(_add_weather(canvas, road, scene.surface, rng))
    return frames


def encode_jpeg(frame: Frame) -> bytes:
    """The frame as JPEG bytes, as the data set stores it and as the model was trained on it."""
    out = io.BytesIO()
    Image.fromarray(frame).save(out, format="JPEG", quality=JPEG_QUALITY)
    return out.getvalue()


def jpeg_frames(scene: Scene) -> list[bytes]:
    """The scene's frames as JPEG bytes, in time order."""
    return [encode_jpeg(frame) for frame in draw(scene)]


def _lateral_tenths(curvature_tenths: int, step: int) -> int:
    """k * step^2 / 4 metres in whole tenths, halves away from zero: integers, so no text ever says `-0.0`."""
    magnitude = (abs(curvature_tenths) * step * step + 2) // 4
    return magnitude if curvature_tenths > 0 else -magnitude


@dataclass(frozen=True, slots=True)
class _Road:
    """Where the road lies on each image row below the horizon; `t` runs from 0 (horizon) to 1 (bumper)."""

    horizon: int
    t: NDArray[np.float64]
    centre: NDArray[np.float64]
    half_width: NDArray[np.float64]

    @classmethod
    def bend(cls, horizon: int, curvature: float, jitter: float) -> _Road:
        t = np.linspace(0.0, 1.0, HEIGHT - horizon)
        centre = WIDTH / 2 + jitter + curvature * (1 - t) ** 2 * _BEND_PX
        return cls(horizon, t, centre, 3 + 46 * t)

    def offset(self) -> NDArray[np.float64]:
        """Signed distance of each pixel from the centre line, (rows below the horizon, WIDTH)."""
        return np.arange(WIDTH)[None, :] - self.centre[:, None]


def _paint_road(road: _Road, colours: palette.Colours, phase: float) -> NDArray[np.float32]:
    canvas = np.empty((HEIGHT, WIDTH, 3), dtype=np.float32)
    canvas[: road.horizon] = colours.sky
    ground = canvas[road.horizon :]
    ground[:] = colours.grass
    offset, half = np.abs(road.offset()), road.half_width[:, None]
    line_width = 0.6 + 2.2 * road.t[:, None]
    ground[offset <= half] = colours.road
    ground[np.abs(offset - half * 0.92) <= line_width] = colours.line
    dash_on = ((6.0 * np.sqrt(road.t) + phase) % 1.0 < 0.5)[:, None]
    ground[(offset <= line_width * 0.7) & dash_on] = colours.line
    return canvas


def _paint_obstacle(canvas: NDArray[np.float32], road: _Road, t: float, body: palette.Rgb, *, dim: bool) -> None:
    """A box that stands on the road's axis at depth `t`, with a dark foot."""
    row = int(np.searchsorted(road.t, t))
    size = 4 + 24 * t
    bottom, height = road.horizon + row, round(size * 0.8)
    left, right = (round(road.centre[row] + side * size / 2) for side in (-1, 1))
    box = canvas[max(bottom - height, 0) : bottom, max(left, 0) : max(right, 0)]
    box[:] = np.multiply(body, 0.45 if dim else 1.0)
    foot = canvas[bottom : bottom + max(1, round(size * 0.15)), max(left, 0) : max(right, 0)]
    foot[:] = palette.FOOT


def _add_weather(canvas: NDArray[np.float32], road: _Road, surface: str, rng: np.random.Generator) -> Frame:
    if surface == "wet":
        on_road = np.abs(road.offset()) <= road.half_width[:, None]
        specks = (rng.random(on_road.shape) < 0.10) & on_road
        canvas[road.horizon :][specks] += 55
    elif surface == "snow":
        canvas[rng.random((HEIGHT, WIDTH)) < 0.05] = 255
    noise = rng.standard_normal(canvas.shape, dtype=np.float32)
    canvas += noise * palette.NOISE_SIGMA[surface]
    return np.clip(canvas, 0, 255).astype(np.uint8)
