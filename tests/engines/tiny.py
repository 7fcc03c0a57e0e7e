"""Requests about synthetic scenes, and directories of the tiny model that answers them."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PIL import Image

from proctor.engines.base import Engine, IterFeed
from proctor.rows import ImagePart, Message, Request, Response, Sampling, TextPart

QUESTION = "Describe the road and plan the path."


def picture(width: int = 128, height: int = 96, colour: str = "teal", format_: str = "JPEG") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(buffer, format_)
    return buffer.getvalue()


def ask(
    id_: int, images: Iterable[bytes] = (), text: str = QUESTION, slots: int | None = None, **sampling: Any
) -> Request:
    """One user message: `slots` places for images (as many as there are images unless said), then `text`."""
    images = tuple(images)
    places = [ImagePart()] * (len(images) if slots is None else slots)
    return Request(id_, (Message("user", (*places, TextPart(text))),), images, Sampling(**sampling))


def ask_scene(number: int, **sampling: Any) -> Request:
    """A question about the demo's scene `number`, with its one to three frames."""
    from proctor.demo.scenes import jpeg_frames, scene

    return ask(number, jpeg_frames(scene(number)), **sampling)


def write_random_model(directory: Path, seed: int = 0) -> Path:
    """The tiny Qwen3-VL with fresh weights: its answers are noise, but always the same noise."""
    from proctor.demo.model import WEIGHTS_FILE, new_model, save_weights, write_shared_files

    write_shared_files(directory)
    save_weights(new_model(seed), directory / WEIGHTS_FILE)
    return directory


def answers(engine: Engine, requests: Iterable[Request]) -> dict[int, Response]:
    """All responses by id; fails if a request is answered twice or never."""
    asked = list(requests)
    found: dict[int, Response] = {}
    for response in engine.stream(IterFeed(iter(asked)), lambda tokens: None):
        assert response.id not in found
        found[response.id] = response
    assert set(found) == {request.id for request in asked}
    return found
