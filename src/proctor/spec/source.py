"""Where rows come from, and which of their columns mean what."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from proctor.spec.model import MOST_ID, PathText, SpecModel


def is_expression(column: str) -> bool:
    """Whether an entry of `ColumnsSpec` is an expression, which begins with ``=``, and not a column's name."""
    return column.startswith("=")


class ColumnsSpec(SpecModel):
    """Which columns of the source mean what. Columns not named here are still there for the task's prompt.

    Each entry is a column's name or, with ``=`` in front, a DuckDB SQL expression over the columns of its row, e.g.
    ``"=concat('Q: ', question)"``, ``"=image.bytes"``, ``"=[x.bytes for x in images]"``.
    """

    images: list[str] = []
    """Columns with images, in prompt order. A column may hold one image or a list of them."""
    sample_id: str | None = None
    """Column with your own key of a row; it is copied into every record."""
    target: str | None = None
    """Column with what the answer is marked against (text, a number, or JSON). `driving` expects JSON."""
    prompt: str | None = None
    """Column with a prompt of the row's own; without it the task's prompt is the same for every row."""


class SourceBase(SpecModel):
    """What all sources share."""

    path: PathText
    """Where the data lies. A relative path starts at the directory of the spec file."""
    columns: ColumnsSpec = ColumnsSpec()
    """Which columns mean what."""
    limit: int | None = Field(default=None, ge=1, le=MOST_ID)
    """Only the first so many rows. Default: all."""


class MdsSourceSpec(SourceBase):
    """MDS shards: a directory or URL with an ``index.json``."""

    kind: Literal["mds"]
    """Format of the source."""
    path: PathText
    """Where the data lies: a directory, or a URL (``s3://``, ``gs://``, ``az://``, ``https://``; see `storage`). A
    relative path starts at the directory of the spec file."""
    allow_pickle: bool = False
    """Let columns with encoding ``pkl`` through as raw bytes. They are never unpickled; by default they are refused."""
    verify_hashes: bool = True
    """Check shard hashes when the index has them."""
    cache_gb: float = Field(default=16.0, ge=0, le=1e6)
    """Most disk space, in GB, for shards that have to be whole on this machine: compressed ones, and those in object
    storage whose hashes are checked. All processes of a machine share it; what was used least recently goes first. `0`:
    none is kept, and each process uses temporary files."""
    cache_dir: PathText | None = None
    """Where these shards are kept, on every machine: a local directory. Default: the one for temporary files."""

    @field_validator("cache_dir")
    @classmethod
    def _is_local(cls, path: str | None) -> str | None:
        if path is not None and "://" in path:
            raise ValueError("a cache lies in a local directory, not below a URL")
        return path


class ParquetSourceSpec(SourceBase):
    """Parquet: one file, or a directory whose ``*.parquet`` files are read in name order; or a URL of either."""

    kind: Literal["parquet"]
    """Format of the source."""


class JsonlSourceSpec(SourceBase):
    """JSON lines: one file, or a directory whose ``*.jsonl`` files are read in name order; or a URL of either. Files
    may be compressed: ``.jsonl.gz``, ``.jsonl.zst``, ``.jsonl.bz2``."""

    kind: Literal["jsonl"]
    """Format of the source."""


class WebDatasetSourceSpec(SourceBase):
    """WebDataset: one tar archive, or a directory whose ``*.tar`` files are read in name order; or a URL of either.
    Archives may be compressed: ``.tar.gz``, ``.tgz``, ``.tar.zst``, ``.tar.bz2``."""

    kind: Literal["webdataset"]
    """Format of the source."""


class ImageFolderSourceSpec(SourceBase):
    """Images in a folder and its sub-folders, with or without metadata files; or the folder's URL."""

    kind: Literal["imagefolder"]
    """Format of the source."""


class HuggingFaceSourceSpec(SourceBase):
    """A data set that Hugging Face's ``datasets`` has saved with ``save_to_disk``: a local directory."""

    kind: Literal["huggingface"]
    """Format of the source."""
    split: str | None = Field(default=None, min_length=1)
    """Which split of a saved ``DatasetDict``. May be left out if there is one only."""


class LanceSourceSpec(SourceBase):
    """A Lance data set: a directory, or a URL (``s3://``, ``gs://``, ``az://``). Needs the extra ``proctor[lance]``."""

    kind: Literal["lance"]
    """Format of the source."""
    version: int | None = Field(default=None, ge=1, le=MOST_ID)
    """Which version of the data set. Default: the latest one when the run starts."""


SourceSpec = Annotated[
    MdsSourceSpec
    | ParquetSourceSpec
    | JsonlSourceSpec
    | WebDatasetSourceSpec
    | ImageFolderSourceSpec
    | HuggingFaceSourceSpec
    | LanceSourceSpec,
    Field(discriminator="kind"),
]
