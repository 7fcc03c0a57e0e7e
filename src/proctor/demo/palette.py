"""The colours of the synthetic scenes, by road surface."""

from __future__ import annotations

from typing import Final, NamedTuple

Rgb = tuple[int, int, int]


class Colours(NamedTuple):
    """The four flat colours a frame is painted with."""

    sky: Rgb
    grass: Rgb
    road: Rgb
    line: Rgb


COLOURS: Final[dict[str, Colours]] = {
    "dry": Colours(sky=(140, 185, 225), grass=(85, 135, 65), road=(100, 100, 104), line=(235, 235, 230)),
    "wet": Colours(sky=(135, 145, 158), grass=(62, 98, 62), road=(58, 64, 78), line=(200, 205, 210)),
    "snow": Colours(sky=(212, 218, 224), grass=(234, 237, 240), road=(188, 192, 198), line=(140, 144, 152)),
    "night": Colours(sky=(10, 12, 26), grass=(16, 24, 18), road=(36, 37, 42), line=(130, 128, 112)),
}

NOISE_SIGMA: Final[dict[str, float]] = {"dry": 6.0, "wet": 9.0, "snow": 8.0, "night": 5.0}
"""Standard deviation of the pixel noise, in grey levels."""

OBSTACLE_BODIES: Final[tuple[Rgb, ...]] = ((176, 44, 40), (44, 66, 158), (214, 190, 66))
FOOT: Final[Rgb] = (14, 14, 16)
