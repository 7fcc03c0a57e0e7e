"""Images: encoded bytes in, upright RGB pixels out, or a short reason why not.

Stands alone: needs Pillow and numpy, so that an engine's child process can use it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proctor.images.decoding import MAX_PIXELS, DecodeError, check, decode, look, pixels

_HOME = "proctor.images.decoding"

__all__ = ["MAX_PIXELS", "DecodeError", "check", "decode", "look", "pixels"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'proctor.images' has no attribute {name!r}")
    return getattr(import_module(_HOME), name)
