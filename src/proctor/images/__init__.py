"""Images: encoded bytes in, upright RGB pixels out, or a short reason why not.

Stands alone: needs Pillow and numpy, so that an engine's child process can use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor._lazy import lazy

if TYPE_CHECKING:
    from proctor.images.decoding import MAX_PIXELS, DecodeError, check, decode, look, pixels

__all__ = ["MAX_PIXELS", "DecodeError", "check", "decode", "look", "pixels"]

__getattr__, __dir__ = lazy(__name__, dict.fromkeys(__all__, "decoding"))
