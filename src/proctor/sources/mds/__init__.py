"""MDS, the sharded format of MosaicML Streaming: an own reader that decodes whole columns into Arrow, and a writer."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proctor.sources.mds.source import MDSSource
    from proctor.sources.mds.writer import MDSWriter

_HOMES = {"MDSSource": "proctor.sources.mds.source", "MDSWriter": "proctor.sources.mds.writer"}

__all__ = ["MDSSource", "MDSWriter"]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'proctor.sources.mds' has no attribute {name!r}")
    return getattr(import_module(home), name)
