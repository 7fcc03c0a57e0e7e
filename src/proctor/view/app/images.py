"""Images of a row, read back from where the run had them, upright and drawn anew: only pixels leave, never a file."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator

import pyarrow as pa
from pyroaring import BitMap64

from proctor.images import DecodeError
from proctor.results import RunDir
from proctor.rows import Sample, UserError
from proctor.rows.text import told
from proctor.sources.base import Fetching, Source
from proctor.sources.chosen import SomeRows
from proctor.sources.registry import source_of
from proctor.sources.samples import to_samples
from proctor.spec import RunSpec
from proctor.view.frames import redrawn

LONGEST_SIDE = 1600  # pixels
_QUALITY = 90
_MOST_SOURCES = 4
_AT_ONCE = 2
"""Images that are decoded at once: the largest that may be shown take half a gigabyte each."""


class Images:
    """Reads images; the sources of the last runs stay open, since opening one may mean to count its rows.

    Args:
        allowed: whether sources may be read at all.
    """

    def __init__(self, *, allowed: bool = True) -> None:
        self.allowed = allowed
        self._lock, self._room = threading.Lock(), threading.BoundedSemaphore(_AT_ONCE)
        self._sources: OrderedDict[tuple[str, str], tuple[RunSpec, Source, BitMap64]] = OrderedDict()

    def jpeg(self, run: RunDir, row_id: int, place: int) -> bytes:
        """Image `place` (from 0) of a row as JPEG, at most `LONGEST_SIDE` pixels a side.

        Raises:
            UserError: it is not there, or no image, or the source is not as it was; with the reason.
            OSError: storage failed.
        """
        if not self.allowed:
            raise UserError("images are switched off", fix="start without --no-images")
        try:
            images = self._row(run, row_id).images
        except ValueError as error:
            raise UserError(f"the source cannot be read: {told(error)}", where=run.location) from error
        if not 0 <= place < len(images):
            raise UserError(f"row {row_id} has {len(images)} images", where="source")
        try:
            with self._room:
                return redrawn(images[place], LONGEST_SIDE, _QUALITY)
        except DecodeError as error:
            raise UserError(f"this is no image that can be shown: {error}", where="source") from None

    def _row(self, run: RunDir, row_id: int) -> Sample:
        spec, source, expected = self._source(run)
        if row_id < 0 or row_id not in expected:
            raise UserError(f"the source has no row {row_id}", where=spec.source.path)
        for block in _blocks(source, row_id):
            for sample in to_samples(block, spec.source.columns):
                if isinstance(sample, Sample):
                    return sample
                raise UserError(f"row {row_id} cannot be read: {sample.failure.message}", where=spec.source.path)
        raise UserError(f"the source did not give row {row_id}", where=spec.source.path)

    def _source(self, run: RunDir) -> tuple[RunSpec, Source, BitMap64]:
        key = (run.location, run.spec_text() or "")
        with self._lock:
            found = self._sources.pop(key, None)
        if found is None:
            spec = run.spec()
            if spec is None:
                raise UserError("no run here (no spec.yaml)", where=run.location)
            source = source_of(spec)
            found = (spec, source, source.expected())
        with self._lock:
            self._sources[key] = found
            while len(self._sources) > _MOST_SOURCES:
                self._sources.popitem(last=False)
        return found


def _blocks(source: Source, row_id: int) -> Iterator[pa.Table]:
    """The row alone, by ranged reads where the format can be read so."""
    whole = source.source if isinstance(source, SomeRows) else source
    if isinstance(whole, Fetching):
        yield whole.fetch([row_id])
        return
    for group in source.groups(BitMap64([row_id]), 1):
        yield from source.read(group)
