"""Whether a spec's data can be read and its run directory be written, looked at from here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import obstore
from obstore.exceptions import BaseError

from proctor.doctor.findings import Finding
from proctor.spec import RunSpec
from proctor.storage.connect import StorageOptions, is_url, object_store
from proctor.storage.replies import explained

_LEAST_DISK = 1_000_000_000


def look_at_source(spec: RunSpec, seconds: float) -> Iterator[Finding]:
    """Whether there is something at `source.path`, and it may be read."""
    place = spec.source.path
    if is_url(place) and not place.startswith("file://"):
        yield from _remote("source.path", place, _hasty(spec, seconds), empty=False)
        return
    path = Path(place.removeprefix("file://"))
    if not path.exists():
        yield Finding("storage", "source.path", "missing", f"nothing at {path}", "see source.path in the spec")
    elif not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
        yield Finding("storage", "source.path", "missing", f"{path} may not be read", f"chmod -R u+rX {path}")
    else:
        yield Finding("storage", "source.path", "ok", str(path))


def look_at_run_dir(spec: RunSpec, seconds: float) -> Iterator[Finding]:
    """Whether the run directory can be made, or seen in its bucket; nothing is written."""
    place = spec.run_dir
    if is_url(place) and not place.startswith("file://"):
        yield from _remote("run_dir", place, _hasty(spec, seconds), empty=True)
        return
    path = Path(place.removeprefix("file://"))
    there = next(parent for parent in (path, *path.parents) if parent.exists())
    if not there.is_dir():
        yield Finding("storage", "run_dir", "missing", f"{there} is no directory", "set another run_dir")
    elif not os.access(there, os.W_OK | os.X_OK):
        yield Finding("storage", "run_dir", "missing", f"{there} may not be written to", f"chmod u+rwx {there}")
    elif (free := shutil.disk_usage(there).free) < _LEAST_DISK:
        yield Finding("storage", "run_dir", "warning", f"only {free / 1e9:.1f} GB free at {there}", "make room there")
    else:
        yield Finding("storage", "run_dir", "ok", f"{path}, {free / 1e9:.1f} GB free")


def _hasty(spec: RunSpec, seconds: float) -> StorageOptions:
    """The spec's storage, with one try and little patience."""
    options = StorageOptions(**spec.storage.model_dump())
    return replace(options, attempts=1, connect_seconds=seconds, read_seconds=seconds, retry_seconds=seconds)


def _remote(key: str, url: str, options: StorageOptions, *, empty: bool) -> Iterator[Finding]:
    """Lists one page, or asks for the one object."""
    connection = object_store(url, options)
    try:
        if url.startswith(("http://", "https://")):
            found = _head(connection.store, connection.prefix)
        else:
            pages = obstore.list(connection.store, connection.prefix, chunk_size=1)
            found = any(True for _page in pages) or _head(connection.store, connection.prefix)
    except BaseError as error:
        fix = "see storage in the spec, and the provider's own variables (AWS_ACCESS_KEY_ID ...)"
        yield Finding("storage", key, "missing", f"{url}: {explained(error)}", fix)
        return
    if found or empty:
        yield Finding("storage", key, "ok", f"{url} answers")
    elif url.startswith(("http://", "https://")):  # a web server need not have anything at a directory's own address
        yield Finding("storage", key, "ok", f"{url} answers, though with nothing at that very address")
    else:
        yield Finding("storage", key, "missing", f"{url}: nothing there", f"see {key} in the spec")


def _head(store: obstore.store.ObjectStore, path: str) -> bool:
    """Whether there is an object."""
    try:
        obstore.head(store, path)
    except FileNotFoundError:  # obstore's NotFoundError is one
        return False
    return True
