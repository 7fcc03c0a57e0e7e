"""Waypoints as the camera sees them: points on a level road, drawn on an image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from proctor.spec.camera import CameraSpec
from proctor.view.charts.path import Points, told_point

_NEAREST = 0.05  # metres in front of the lens
_MARK = 0.011  # of the width of the image


@dataclass(frozen=True, slots=True)
class Dot:
    """A waypoint in the pixels of the camera."""

    x: float
    y: float
    title: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What is drawn on an image of `width` times `height` pixels.

    Attributes:
        image: its number, from 0.
        target, answer: waypoints in the image, in their order.
        errors: those of the same position on both sides.
        outside: how many of the others there are: behind the camera, or beyond the edges.
        radius: of a dot, in pixels.
    """

    image: int
    width: float
    height: float
    target: list[Dot]
    answer: list[Dot]
    errors: list[tuple[Dot, Dot]]
    outside: int
    radius: float


def seen(answer: Points, target: Points, camera: CameraSpec, images: int) -> Seen | None:
    """The waypoints of an answer beside the target's, on one of `images` images; None if the camera's is not there."""
    image = camera.image if camera.image >= 0 else images + camera.image
    if not 0 <= image < images:
        return None
    said, truth = (
        [_dot(point, camera, whose) for point in points] for points, whose in ((answer, "answer"), (target, "target"))
    )
    return Seen(
        image,
        *camera.size,
        target=[dot for dot in truth if dot],
        answer=[dot for dot in said if dot],
        errors=[(one, other) for one, other in zip(truth, said, strict=False) if one and other],
        outside=[*said, *truth].count(None),
        radius=round(_MARK * camera.size[0], 1),
    )


def projected(lateral: float, ahead: float, camera: CameraSpec) -> tuple[float, float] | None:
    """Where a point of the road lies, in pixels from the left and from the top; None if the camera has it behind it.

    Args:
        lateral, ahead: metres to the right and ahead of the point that waypoints are measured from.
        camera: a pinhole: x = f X / Z + c (Hartley and Zisserman, Multiple View Geometry, 2nd ed., section 6.1), turned
            first to the side, then down.
    """
    right, forward = lateral - camera.right, ahead - camera.ahead
    yaw, pitch = math.radians(camera.yaw), math.radians(camera.pitch)
    across = right * math.cos(yaw) - forward * math.sin(yaw)
    level = right * math.sin(yaw) + forward * math.cos(yaw)
    depth = level * math.cos(pitch) + camera.above_road * math.sin(pitch)
    down = camera.above_road * math.cos(pitch) - level * math.sin(pitch)
    if depth < _NEAREST:
        return None
    centre = camera.centre or (camera.size[0] / 2, camera.size[1] / 2)
    return camera.focal[0] * across / depth + centre[0], camera.focal[1] * down / depth + centre[1]


def _dot(point: Sequence[float], camera: CameraSpec, whose: str) -> Dot | None:
    lateral, ahead = point
    place = projected(lateral, ahead, camera)
    if place is None or not (0 <= place[0] <= camera.size[0] and 0 <= place[1] <= camera.size[1]):
        return None
    return Dot(round(place[0], 1), round(place[1], 1), told_point(whose, lateral, ahead))
