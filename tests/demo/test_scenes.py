from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from proctor.demo.scenes import (
    CURVATURES,
    HEIGHT,
    OBSTACLES,
    SURFACES,
    WIDTH,
    Scene,
    answer,
    draw,
    jpeg_frames,
    scene,
    target,
)

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = [0, 1, 7, 255, 10_000_000]

DIGEST_PROGRAM = """
import hashlib, sys
from proctor.demo.scenes import jpeg_frames, scene
for number in sys.argv[1:]:
    print(hashlib.sha256(b"".join(jpeg_frames(scene(int(number))))).hexdigest())
"""


def make(**changes: object) -> Scene:
    fields = {"number": 0, "surface": "wet", "curvature_tenths": -6, "obstacle": "near", "frames": 2}
    return Scene(**(fields | changes))  # type: ignore[arg-type]


def test_another_process_draws_the_same_bytes() -> None:
    command = [sys.executable, "-c", DIGEST_PROGRAM, *map(str, NUMBERS)]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": "7"}
    other = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    here = [hashlib.sha256(b"".join(jpeg_frames(scene(number)))).hexdigest() for number in NUMBERS]
    assert other == here
    assert len(set(here)) == len(NUMBERS)


def test_frames_have_the_announced_shape_and_move() -> None:
    shown = next(scene(number) for number in range(100) if scene(number).frames == 3)
    frames = draw(shown)
    assert [frame.shape for frame in frames] == [(HEIGHT, WIDTH, 3)] * 3
    assert all(frame.dtype == np.uint8 for frame in frames)
    noise = np.abs(frames[0][:20].astype(int) - frames[1][:20]).mean()
    motion = np.abs(frames[0][50:].astype(int) - frames[1][50:]).mean()
    assert motion > noise


def test_every_value_occurs_among_the_held_out_scenes() -> None:
    scenes = [scene(number) for number in range(256)]
    assert {s.surface for s in scenes} == set(SURFACES)
    assert {s.obstacle for s in scenes} == set(OBSTACLES)
    assert {s.curvature_tenths for s in scenes} == set(CURVATURES)
    assert {s.frames for s in scenes} == {1, 2, 3}


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (make(), "wet; curve left; obstacle near; waypoints (-0.2,1.0) (-0.6,2.0)"),
        (
            make(surface="dry", curvature_tenths=-1, obstacle="clear"),
            "dry; straight; clear; waypoints (+0.0,1.0) (-0.1,2.0) (-0.2,3.0) (-0.4,4.0)",
        ),
        (
            make(surface="night", curvature_tenths=8, obstacle="far"),
            "night; curve right; obstacle far; waypoints (+0.2,1.0) (+0.8,2.0) (+1.8,3.0) (+3.2,4.0)",
        ),
    ],
)
def test_the_answer_says_what_the_scene_is(shown: Scene, text: str) -> None:
    assert answer(shown) == text


def test_no_answer_says_minus_zero_and_all_204_differ() -> None:
    texts = {
        answer(make(surface=s, curvature_tenths=k, obstacle=o)) for s in SURFACES for k in CURVATURES for o in OBSTACLES
    }
    assert len(texts) == 4 * 17 * 3
    assert not any("-0.0" in text for text in texts)


def test_target_and_answer_agree() -> None:
    for number in range(200):
        shown = scene(number)
        truth = target(shown)
        points = " ".join(f"({x:+.1f},{y:.1f})" for x, y in truth["waypoints"])
        curve = truth["curvature"] if truth["curvature"] == "straight" else f"curve {truth['curvature']}"
        obstacle = truth["obstacle"] if truth["obstacle"] == "clear" else f"obstacle {truth['obstacle']}"
        assert answer(shown) == f"{truth['surface']}; {curve}; {obstacle}; waypoints {points}"


def test_left_and_right_mirror_each_other() -> None:
    left, right = (target(make(curvature_tenths=k, obstacle="clear"))["waypoints"] for k in (-5, 5))
    assert left == [[-x, y] for x, y in right]


def test_the_obstacle_is_where_the_scene_says() -> None:
    clear, far, near = (draw(make(obstacle=obstacle, frames=1, curvature_tenths=0))[0] for obstacle in OBSTACLES)
    changed = [np.argwhere(np.abs(frame.astype(int) - clear).max(axis=2) > 60)[:, 0].mean() for frame in (far, near)]
    assert 34 < changed[0] < changed[1] < HEIGHT
