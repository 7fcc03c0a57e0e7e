"""How many pixels a model is to get: a number, or what the model's own processor would leave of an image."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from proctor.images.expansion import Expansion, qwen_vl_expansion, qwen_vl_resized
from proctor.rows import UserError

_QWEN_PROCESSORS = ("Qwen2VLImageProcessor", "Qwen2_5_VLImageProcessor")
"""Qwen3-VL and Qwen3.5 name the first one too, each with its own numbers; ``Fast`` and ``Pil`` are the same sizes."""


@dataclass(frozen=True, slots=True)
class PixelBudget:
    """At most `pixels` pixels, in the image's own proportions."""

    pixels: int
    resample: Image.Resampling = Image.Resampling.BICUBIC

    def target(self, width: int, height: int) -> tuple[int, int] | None:
        """(width, height) to resize an image to; None where it is within the budget."""
        if width * height <= self.pixels:
            return None
        scale = math.sqrt(self.pixels / (width * height))
        width = min(max(1, math.floor(width * scale)), self.pixels)
        return width, min(max(1, math.floor(height * scale)), self.pixels // width)


@dataclass(frozen=True, slots=True)
class QwenVLBudget:
    """The pixel limits of a checkpoint of the Qwen-VL family, as its processor's configuration has them.

    Attributes:
        patch, merge: side of a patch in pixels, and patches a side that become one token.
        temporal: frames in a patch.
        min_pixels, max_pixels: of a resized image.
        resample: the filter of the processor's resize.
    """

    patch: int = 14
    merge: int = 2
    temporal: int = 2
    min_pixels: int = 56 * 56
    max_pixels: int = 28 * 28 * 1280
    resample: Image.Resampling = Image.Resampling.BICUBIC

    def target(self, width: int, height: int) -> tuple[int, int] | None:
        """(width, height) that the processor resizes to, where that has fewer pixels and it would leave them alone.

        None as well for an image that the processor refuses: that is for the engine to say.
        """
        try:
            resized = self._resized(height, width)
            if resized[0] * resized[1] >= width * height or self._resized(*resized) != resized:
                return None
        except ValueError:
            return None
        return resized[1], resized[0]

    def expansion(self, width: int, height: int) -> Expansion:
        """What the processor makes of an image.

        Raises:
            ValueError: it refuses the image.
        """
        limits = {"min_pixels": self.min_pixels, "max_pixels": self.max_pixels}
        return qwen_vl_expansion(height, width, patch=self.patch, merge=self.merge, temporal=self.temporal, **limits)

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        limits = {"min_pixels": self.min_pixels, "max_pixels": self.max_pixels}
        return qwen_vl_resized(height, width, patch=self.patch, merge=self.merge, **limits)


def qwen_vl_budget(directory: str | Path, arguments: Mapping[str, Any] | None = None) -> QwenVLBudget | None:
    """The budget of the checkpoint in `directory`; None if its processor is of another family, or does not resize.

    Args:
        directory: holds ``preprocessor_config.json`` or ``processor_config.json``.
        arguments: of the processor's call, which stand above its configuration (``mm_processor_kwargs``).

    Raises:
        UserError: there is no readable configuration of an image processor.
    """
    config = image_processor_config(Path(directory))
    name = str(config.get("image_processor_type", "")).removesuffix("Fast").removesuffix("Pil")
    if name not in _QWEN_PROCESSORS or config.get("do_resize") is False:
        return None
    default = QwenVLBudget()
    limits = {"min_pixels": default.min_pixels, "max_pixels": default.max_pixels}
    limits |= _limits(config) | _limits(arguments or {})
    return QwenVLBudget(
        patch=int(config.get("patch_size", default.patch)),
        merge=int(config.get("merge_size", default.merge)),
        temporal=int(config.get("temporal_patch_size", default.temporal)),
        min_pixels=limits["min_pixels"],
        max_pixels=limits["max_pixels"],
        resample=Image.Resampling(config.get("resample", default.resample)),
    )


def _limits(config: Mapping[str, Any]) -> dict[str, int]:
    """The pixel limits that a configuration sets. The older names stand above `size`, as in transformers."""
    size = config.get("size") or {}
    found = {
        "min_pixels": config.get("min_pixels") or size.get("shortest_edge"),
        "max_pixels": config.get("max_pixels") or size.get("longest_edge"),
    }
    return {name: int(value) for name, value in found.items() if value}


def image_processor_config(directory: Path) -> dict[str, Any]:
    """The configuration of the image processor of a checkpoint, from the file that transformers takes it from.

    Raises:
        UserError: there is none, or it cannot be read.
    """
    joint = _json(directory / "processor_config.json").get("image_processor")
    found = joint if isinstance(joint, dict) else _json(directory / "preprocessor_config.json")
    if not found:
        raise UserError(f"{directory} has no preprocessor_config.json", where="engine.checkpoints")
    return found


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}", where="engine.checkpoints") from error
    return content if isinstance(content, dict) else {}
