"""From a path or URL to a folder."""

from __future__ import annotations

import os
from pathlib import Path

from proctor.storage.base import Busy, Folder, Journal, StorageError, Version, Versioned
from proctor.storage.connect import DEFAULT_OPTIONS, StorageOptions, is_url, object_store
from proctor.storage.local import LocalFolder
from proctor.storage.objects import ObjectFolder

__all__ = [
    "Busy",
    "Folder",
    "Journal",
    "LocalFolder",
    "ObjectFolder",
    "StorageError",
    "Version",
    "Versioned",
    "open_folder",
]


def open_folder(place: str | os.PathLike[str], options: StorageOptions = DEFAULT_OPTIONS) -> Folder:
    """The folder at `place`: a path, or a URL of a bucket. Nothing is made or sent yet.

    Raises:
        UserError: no storage is known by that URL.
    """
    text = os.fspath(place)
    if not is_url(text):
        return LocalFolder(Path(text))
    connection = object_store(text, options)
    if text.startswith("file://"):
        return LocalFolder(Path("/") / connection.prefix)
    return ObjectFolder(text.rstrip("/"), options)
