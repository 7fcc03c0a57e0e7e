"""From a path or URL to a folder."""

from __future__ import annotations

import os
from pathlib import Path

from proctor.rows import UserError
from proctor.storage.base import Busy, Folder, Journal, StorageError, Version, Versioned
from proctor.storage.connect import DEFAULT_OPTIONS, StorageOptions, is_url, object_store
from proctor.storage.local import LocalFolder
from proctor.storage.objects import ObjectFolder

Place = str | os.PathLike[str] | Folder
"""What can be opened as a folder."""

__all__ = [
    "Busy",
    "Folder",
    "Journal",
    "LocalFolder",
    "ObjectFolder",
    "Place",
    "StorageError",
    "Version",
    "Versioned",
    "open_folder",
]


def open_folder(place: Place, options: StorageOptions = DEFAULT_OPTIONS) -> Folder:
    """The folder at `place`: a path, a URL of a bucket, or a folder already. Nothing is made or sent yet.

    Raises:
        UserError: no storage is known by that URL.
    """
    if not isinstance(place, str | os.PathLike):
        return place
    text = os.fspath(place)
    if not is_url(text):
        return LocalFolder(Path(text))
    connection = object_store(text, options)
    if text.startswith("file://"):
        return LocalFolder(Path("/") / connection.prefix)
    if text.startswith(("http://", "https://")):
        raise UserError("a web server cannot be written to", where=text, fix="use s3://, gs://, az:// or a directory")
    return ObjectFolder(text.rstrip("/"), options)
