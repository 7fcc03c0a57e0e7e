"""Decoding JPEG frames of 1920 x 1080 and 3840 x 2160: Pillow, a check, simplejpeg, an early resize, scaled decoding.

Every round runs all contestants one after another on the same bytes in one thread, so that a busy machine slows them
alike; a ratio is taken within a round, and the figure is the median over rounds with the extremes beside it.

The pictures are random colours blown up to blocks of a few pixels with soft edges, which compress like photographs.
"""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from proctor.images import check, pixels
from proctor.images.budget import PixelBudget
from proctor.images.jpeg import is_exact
from proctor.images.rules import ImageRules, treat

TITLE = "decoding JPEG frames, ms of one thread a frame"

SIZES = {"1080p": (1920, 1080), "4K": (3840, 2160)}
BUDGET = 960 * 540
TIMES = 3  # decodes of a contestant in a round


def run(rounds: int) -> list[dict[str, Any]]:
    """Measures both sizes and returns one dict a figure: name, figure, unit, ratio_to, rounds, spread."""
    if not is_exact():
        raise SystemExit("this benchmark needs simplejpeg, and a Pillow with libjpeg-turbo")
    return [figure for name, size in SIZES.items() for figure in frames(name, frame(*size), rounds)]


def frame(width: int, height: int) -> bytes:
    """A picture as JPEG of quality 88."""
    colours = np.random.default_rng(0).integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    picture = Image.fromarray(colours).resize((width, height), Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=88)
    return buffer.getvalue()


def frames(name: str, data: bytes, rounds: int) -> list[dict[str, Any]]:
    """The figures of one frame."""
    small, scaled = ImageRules(budget=PixelBudget(BUDGET)), ImageRules(budget=PixelBudget(BUDGET), scale_on_decode=True)
    contestants: dict[str, Callable[[], object]] = {
        "Pillow": lambda: by_pillow(data),
        "check": lambda: check(data),
        "Pillow, to an array": lambda: np.asarray(by_pillow(data)),
        "pixels (simplejpeg)": lambda: pixels(data),
        "resize": lambda: treat(data, small),
        "resize, scale_on_decode": lambda: treat(data, scaled),
    }
    assert by_pillow(data).tobytes() == pixels(data).tobytes()
    taken = interleaved(rounds, contestants)
    label = f"{name} ({len(data) / 1e6:.2f} MB)"
    figures = [result(f"{label}: {who}", "ms", [1e3 * second for second in taken[who]]) for who in contestants]
    for who, other in (
        ("check", "Pillow"),
        ("pixels (simplejpeg)", "Pillow, to an array"),
        ("resize, scale_on_decode", "resize"),
    ):
        speeds = [slow / fast for slow, fast in zip(taken[other], taken[who], strict=True)]
        figures.append(result(f"{label}: {who}, speed", "x", speeds, other))
    figures.append(result(f"{label}: bytes that travel after resize", "MB", [len(treat(data, small).data) / 1e6]))
    return figures


def by_pillow(data: bytes) -> Image.Image:
    """Pillow alone."""
    image = JpegImageFile(io.BytesIO(data))
    image.load()
    return image


def interleaved(rounds: int, contestants: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Seconds of one decode of each contestant in each round, after one round that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, contestant in contestants.items():
            start = time.perf_counter()
            for _ in range(TIMES):
                contestant()
            if number:
                seconds[name].append((time.perf_counter() - start) / TIMES)
    return seconds


def result(name: str, unit: str, values: list[float], ratio_to: str | None = None) -> dict[str, Any]:
    """One figure: the median of the rounds, and the lowest and highest of them as its spread."""
    low, middle, high = (round(value, 3) for value in (min(values), statistics.median(values), max(values)))
    facts = {"rounds": len(values), "spread": [low, high]}
    return {"name": name, "figure": middle, "unit": unit, "ratio_to": ratio_to, **facts}
