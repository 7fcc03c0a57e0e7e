"""Waypoints on an image, against a second derivation: the camera as a matrix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from starlette.testclient import TestClient

from proctor.demo.scenes import CAMERA, CURVATURES, Scene, _Road
from proctor.rows import UserError
from proctor.spec import build_spec
from proctor.spec.camera import CameraSpec
from proctor.spec.compare import differences
from proctor.spec.store import dump_spec
from proctor.view.charts.seen import projected, seen
from tests.view.app.asking import ask, client_of
from tests.view.helpers import make_run

LEVEL = CameraSpec(size=(1000, 600), focal=(800, 800), above_road=1.5)
_METRES = st.floats(-50, 50)
_DEGREES = st.floats(-40, 40)


def test_a_level_camera_sees_the_road_below_the_middle() -> None:
    assert projected(0, 10, LEVEL) == (500, 420)  # 800 * 1.5 / 10 below 300
    assert projected(2, 10, LEVEL) == (660, 420)
    assert projected(-2, 10, LEVEL) == (340, 420)
    assert projected(0, -1, LEVEL) is None
    assert projected(0, 0, LEVEL) is None


def test_looking_down_raises_the_road_and_looking_right_moves_it_left() -> None:
    down = LEVEL.model_copy(update={"pitch": 5.0})
    right = LEVEL.model_copy(update={"yaw": 5.0})
    (_, level_y), (_, down_y) = projected(0, 10, LEVEL) or (), projected(0, 10, down) or ()
    assert down_y < level_y
    assert (projected(0, 10, right) or ())[0] < 500


@given(_METRES, _METRES, _DEGREES, _DEGREES, st.floats(-3, 3), st.floats(-3, 3))
def test_any_camera_agrees_with_its_matrix(
    lateral: float, ahead: float, pitch: float, yaw: float, right: float, forward: float
) -> None:
    camera = LEVEL.model_copy(
        update={"pitch": pitch, "yaw": yaw, "right": right, "ahead": forward, "centre": (480.0, 310.0)}
    )
    u, v, depth = _matrix(camera) @ np.array([lateral, 0.0, ahead, 1.0])
    found = projected(lateral, ahead, camera)
    if found is None:
        assert depth < 0.051
    else:
        assert depth > 0.049
        assert found == pytest.approx((u / depth, v / depth), rel=1e-6, abs=1e-4)


def _matrix(camera: CameraSpec) -> NDArray[np.float64]:
    """3 x 4: pixels of points (right, down, ahead) of the road's own axes."""
    assert camera.centre is not None
    a, b = np.radians(camera.yaw), np.radians(camera.pitch)
    turn = np.array([[np.cos(a), 0, -np.sin(a)], [0, 1, 0], [np.sin(a), 0, np.cos(a)]])
    tilt = np.array([[1, 0, 0], [0, np.cos(b), -np.sin(b)], [0, np.sin(b), np.cos(b)]])
    inner = np.array([[camera.focal[0], 0, camera.centre[0]], [0, camera.focal[1], camera.centre[1]], [0, 0, 1]])
    lens = np.array([[camera.right], [-camera.above_road], [camera.ahead]])
    matrix: NDArray[np.float64] = inner @ tilt @ turn @ np.hstack([np.eye(3), -lens])
    return matrix


@pytest.mark.parametrize("curvature", CURVATURES)
def test_the_camera_of_the_scenes_has_the_waypoints_in_the_middle_of_the_road(curvature: int) -> None:
    told = Scene(number=0, surface="dry", curvature_tenths=curvature, obstacle="clear", frames=1)
    camera = CameraSpec.model_validate(CAMERA)
    road = _Road.bend(int(CAMERA["centre"][1]), curvature / 10, jitter=0.0)
    for lateral, ahead in told.waypoints:
        place = projected(lateral, ahead, camera)
        assert place is not None
        middle = road.centre[round(place[1]) - road.horizon]
        assert abs(place[0] - middle) < 6


def test_points_outside_the_image_are_counted_and_pairs_keep_their_positions() -> None:
    answer, target = [(0.0, 10.0), (40.0, 10.0), (1.0, 20.0)], [(0.2, 10.0), (0.1, 15.0), (0.0, -5.0), (0.0, 30.0)]
    found = seen(answer, target, LEVEL.model_copy(update={"image": -1}), 3)
    assert found is not None
    assert found.image == 2
    assert found.outside == 2
    assert [dot.title for dot in found.answer] == [
        "answer: +0.00 m to the right, 10.00 m ahead",
        "answer: +1.00 m to the right, 20.00 m ahead",
    ]
    assert [(one.x, other.x) for one, other in found.errors] == [(516.0, 500.0)]
    assert seen(answer, target, LEVEL.model_copy(update={"image": 3}), 3) is None
    assert seen(answer, target, LEVEL.model_copy(update={"image": -4}), 3) is None


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("seen")
    make_run(root, 4)
    with client_of(root) as client:
        yield client, root


def test_a_row_has_its_waypoints_on_the_image_that_the_camera_took(client: tuple[TestClient, Path]) -> None:
    page, _ = ask(client[0], f"/row?in={client[1].name}&path=night-drive&row=2&checkpoint=step-6400")
    assert page.count('class="plot seen" viewBox="0 0 128.0 96.0"') == 1
    assert "camera sees a level road" in page
    assert 'aria-label="waypoints seen from above"' in page


def test_a_camera_may_come_later_and_is_checked(client: tuple[TestClient, Path]) -> None:
    text = yaml.safe_load((client[1] / "night-drive" / "spec.yaml").read_text())
    with_camera = build_spec(text)
    assert build_spec(yaml.safe_load(dump_spec(with_camera))) == with_camera
    camera = text["task"].pop("camera")
    assert differences(build_spec(text), with_camera) == []
    text["task"]["camera"] = {**camera, "above_road": -1}
    with pytest.raises(UserError, match="above_road"):
        build_spec(text)
