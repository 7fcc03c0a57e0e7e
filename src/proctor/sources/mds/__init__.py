"""MDS, the sharded format of MosaicML Streaming: an own reader that decodes whole columns into Arrow, and a writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor._lazy import lazy

if TYPE_CHECKING:
    from proctor.sources.mds.source import MDSSource
    from proctor.sources.mds.writer import MDSWriter

_HOMES = {"MDSSource": "source", "MDSWriter": "writer"}

__all__ = ["MDSSource", "MDSWriter"]

__getattr__, __dir__ = lazy(__name__, _HOMES)
