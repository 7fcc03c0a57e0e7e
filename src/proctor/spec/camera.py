"""How a camera sees the road."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from proctor.spec.model import SpecModel

_Pixels = Annotated[float, Field(gt=0, le=100_000)]
_Place = Annotated[float, Field(ge=-100_000, le=100_000)]
_Metres = Annotated[float, Field(ge=-100, le=100)]
_Degrees = Annotated[float, Field(gt=-90, lt=90)]


class CameraSpec(SpecModel):
    """A pinhole camera over a level road, for points in metres to the right and ahead."""

    image: int = Field(default=0, ge=-64, lt=64)
    """Which of a row's images it took, counted from 0; -1 is the last."""
    size: tuple[_Pixels, _Pixels] = Field(strict=False)
    """Width and height, in pixels, of the image that the other pixels are of. Images may be stored in another size."""
    focal: tuple[_Pixels, _Pixels] = Field(strict=False)
    """Focal lengths, across and down, in pixels."""
    centre: tuple[_Place, _Place] | None = Field(default=None, strict=False)
    """Principal point, in pixels from the left and from the top. Default: the middle of the image."""
    above_road: float = Field(gt=0, le=100)
    """Metres above the road."""
    ahead: _Metres = 0.0
    """Metres ahead of the point that waypoints are measured from."""
    right: _Metres = 0.0
    """Metres to the right of it."""
    pitch: _Degrees = 0.0
    """Degrees that it looks down."""
    yaw: _Degrees = 0.0
    """Degrees that it looks to the right."""
