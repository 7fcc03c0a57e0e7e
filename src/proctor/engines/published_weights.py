"""Published weights, as an engine takes them for a swap."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from proctor.engines.base import EngineConfig, SwapRefused
from proctor.engines.swap_check import Entry, Outline, check_outlines, outline_of
from proctor.rows import UserError

if TYPE_CHECKING:
    from proctor.transfer.published import Published


def attached(path: str, *, verify: bool = True) -> Published:
    """The weights at `path`.

    Args:
        path: as their publisher told it.
        verify: compare every byte with its checksum; needed once in the process that uses them.

    Raises:
        SwapRefused: there are none, they are damaged, or this environment lacks what reading them needs.
    """
    try:
        from proctor.transfer.errors import TransferError
        from proctor.transfer.published import Published
    except ImportError as error:
        raise SwapRefused(f"published weights cannot be read here: {error}") from error
    try:
        return Published.attach(path, verify=verify)
    except (TransferError, UserError) as error:
        raise SwapRefused(f"no published weights: {error}") from error


@contextmanager
def agreed(
    own: Outline | None, config: EngineConfig, weights: str, *, verify: bool = True
) -> Iterator[tuple[Outline, Published | None]]:
    """What is known of the checkpoint that is to come, and its weights if they are published, once all is compared.

    The weights are closed at the end; tensors that were taken from them stay.

    Args:
        own: of the checkpoint that is loaded.
        config: configuration with the checkpoint that is to come.
        weights: path of its published weights; empty if they are to be read from its directory.
        verify: see `attached`.

    Raises:
        SwapRefused: before anything has changed: see `check_outlines`, `outline_of` and `attached`.
    """
    with attached(weights, verify=verify) if weights else nullcontext() as published:
        entries = None if published is None else _entries(published)
        outline = outline_of(config.model, entries, () if published is None else published.manifest.aliases)
        check_outlines(own, outline, config.dtype)
        yield outline, published


def _entries(published: Published) -> Iterator[Entry]:
    manifest = published.manifest
    by_name = {entry.name: entry for entry in manifest.entries}
    for name in manifest.names:
        entry = by_name[manifest.aliases.get(name, name)]
        yield name, entry.dtype, entry.shape
