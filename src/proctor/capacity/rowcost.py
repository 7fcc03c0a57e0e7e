"""What passes between a plan and the process that measures for it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from proctor.sources.base import ReadGroup, Source
from proctor.spec import RunSpec


@dataclass(frozen=True)
class SampleOrder:
    """What to measure: these groups of the source, prepared as the spec says, until the time is over.

    `folder` is a place for files of its own.
    """

    spec: RunSpec
    source: Source
    groups: tuple[ReadGroup, ...]
    seconds: float
    folder: str


class ImageSize(msgspec.Struct, frozen=True, array_like=True):
    """Height and width in pixels, as decoded."""

    height: int
    width: int


class BlockCost(msgspec.Struct, frozen=True):
    """What one block cost. Bytes and seconds; peaks are over the memory that the process had before.

    Attributes:
        shard: where it was read.
        rows: rows of the block.
        failed: rows that could not be read or prepared.
        source_bytes: bytes of the rows as the source counts them.
        arrow_bytes: bytes of the block in Arrow.
        largest_row: bytes of its largest row in Arrow, or of its shard, where the format tells.
        read_peak: the most memory while it was read.
        read_seconds: time to read it.
        read_cpu: CPU time to read it.
        prepared_rows: how many of the rows were prepared before the time was over.
        prepare_source_bytes: their share of `source_bytes`.
        prepare_peak: the most memory while they were prepared.
        prepare_cpu: CPU time to decode and check their images and to make their prompts.
        prepared_bytes: bytes of the prepared rows in Arrow.
        write_cpu: CPU time to write a record for each of them.
        images: number of their images.
        image_rows: sizes of the images of some of them.
        prompt_chars: characters of the longest prompt.
    """

    shard: int
    rows: int
    failed: int
    source_bytes: int
    arrow_bytes: int
    largest_row: int
    read_peak: int
    read_seconds: float
    read_cpu: float
    prepared_rows: int
    prepare_source_bytes: int
    prepare_peak: int
    prepare_cpu: float
    prepared_bytes: int
    write_cpu: float
    images: int
    image_rows: tuple[tuple[ImageSize, ...], ...]
    prompt_chars: int
