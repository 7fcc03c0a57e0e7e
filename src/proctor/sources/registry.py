"""From a source's spec to the source itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pyroaring import BitMap64

from proctor.sources.base import Source
from proctor.sources.chosen import SomeRows
from proctor.sources.files import ids_between
from proctor.spec import (
    HuggingFaceSourceSpec,
    ImageFolderSourceSpec,
    JsonlSourceSpec,
    LanceSourceSpec,
    MdsSourceSpec,
    ParquetSourceSpec,
    RunSpec,
    SourceSpec,
    WebDatasetSourceSpec,
)
from proctor.spec.source import is_expression

if TYPE_CHECKING:
    from proctor.storage.cache import DiskCache
    from proctor.storage.connect import StorageOptions


def source_of(spec: RunSpec) -> Source:
    """The source of a run, reached as its `storage` says.

    Raises:
        UserError: there is no such data, or it is not sound.
    """
    from proctor.storage.connect import StorageOptions

    return make_source(spec.source, StorageOptions(**spec.storage.model_dump()))


def make_source(spec: SourceSpec, storage: StorageOptions | None = None) -> Source:
    """Opens the source: reads its index or footers, or counts its lines. `storage` says how URLs are reached.

    Raises:
        UserError: there is no such data, or it is not sound.
    """
    source = _open(spec, storage)
    return source if spec.limit is None else FirstRows(source, spec.limit)


def _open(spec: SourceSpec, storage: StorageOptions | None) -> Source:
    # Each format is imported only where it is used: the Parquet reader alone costs more than all of `proctor.spec`.
    if isinstance(spec, MdsSourceSpec):
        from proctor.sources.mds import MDSSource

        options = {"allow_pickle": spec.allow_pickle, "verify_hashes": spec.verify_hashes}
        return MDSSource(spec.path, **options, storage=storage, cache=_cache(spec))
    images = [name for name in spec.columns.images if not is_expression(name)]
    if isinstance(spec, HuggingFaceSourceSpec):
        from proctor.sources.huggingface import HuggingFaceSource

        return HuggingFaceSource(spec.path, split=spec.split, images=images)
    if isinstance(spec, LanceSourceSpec):
        from proctor.sources.lancedata import LanceSource

        return LanceSource(spec.path, version=spec.version, images=images, storage=storage)
    return _file_source(spec)(spec.path, images=images, storage=storage)


def _file_source(
    spec: ParquetSourceSpec | JsonlSourceSpec | WebDatasetSourceSpec | ImageFolderSourceSpec,
) -> Callable[..., Source]:
    match spec.kind:
        case "parquet":
            from proctor.sources.parquet import ParquetSource

            return ParquetSource
        case "jsonl":
            from proctor.sources.jsonl import JsonlSource

            return JsonlSource
        case "webdataset":
            from proctor.sources.webdataset import WebDatasetSource

            return WebDatasetSource
        case "imagefolder":
            from proctor.sources.imagefolder import ImageFolderSource

            return ImageFolderSource


def _cache(spec: MdsSourceSpec) -> DiskCache | None:
    if not spec.cache_gb:
        return None
    from proctor.storage.cache import DiskCache

    return DiskCache(int(spec.cache_gb * 1e9), None if spec.cache_dir is None else Path(spec.cache_dir))


class FirstRows(SomeRows):
    """The first rows of another source."""

    def __init__(self, source: Source, limit: int) -> None:
        super().__init__(source)
        self._limit = limit

    def expected(self) -> BitMap64:
        """The ids below the limit."""
        return self.source.expected() & ids_between(0, self._limit)
