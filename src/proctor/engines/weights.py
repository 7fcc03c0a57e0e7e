"""Reads a checkpoint ahead of an engine's swap to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING

from proctor.engines.base import EngineConfig
from proctor.rows import UserError

if TYPE_CHECKING:
    from proctor.transfer.published import Published


@dataclass(frozen=True, slots=True)
class Weights:
    """A checkpoint as an engine may take it over.

    Attributes:
        content_id: the same for the same content.
        published: in shared memory; None where the engine has no weights.
        stamps: see `stamps`, of the files as they were read.
    """

    content_id: str
    published: Published | None = None
    stamps: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """By which the engine's process attaches; empty where there is nothing to attach to."""
        return "" if self.published is None else self.published.path

    def close(self) -> None:
        """Lets go of the memory."""
        if self.published is not None:
            self.published.close()


def read_weights(config: EngineConfig) -> Weights:
    """Reads the checkpoint of `config` into shared memory.

    Raises:
        UserError: its files cannot be read without running code of theirs, or do not fit together.
        OSError: they cannot be read.
    """
    if config.kind == "scripted":  # it has no files: its answers depend on the name at most
        return Weights(PurePath(config.model).name)
    from proctor.transfer.checkpoint import open_checkpoint
    from proctor.transfer.reading import publish_checkpoint

    with open_checkpoint(config.model) as checkpoint:
        published = publish_checkpoint(checkpoint)
        return Weights(published.label.content, published, checkpoint.stamps)


def stamps(config: EngineConfig) -> Mapping[str, str]:
    """What changes with every change of a file of the checkpoint (inode, length, times), by name.

    Empty where it has no files, or where they cannot be found.
    """
    if config.kind == "scripted":
        return {}
    from proctor.transfer.checkpoint import stamps_of
    from proctor.transfer.errors import TransferError

    try:
        return stamps_of(config.model)
    except (UserError, TransferError, OSError):
        return {}
