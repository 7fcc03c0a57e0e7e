"""Where an audit lies: a directory, a run directory that holds one, or either of them on object storage."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from proctor.audit.store import ANSWERS, AUDIT, REPLAYED, TOKENS
from proctor.rows import UserError
from proctor.spec import RunSpec
from proctor.storage.connect import is_url
from proctor.storage.folder import Folder, LocalFolder, Place, open_folder

FOLDER = "audit"
"""Folder of a run directory that its audit lies in."""


def audit_folder(place: Place) -> Folder:
    """The folder that holds an audit: `place` itself, or the one in the run directory at `place`.

    Raises:
        UserError: there is none in either, or that cannot be seen.
    """
    root = open_folder(place)
    try:
        for folder in (root, root.below(FOLDER)):
            if folder.exists(AUDIT):
                return folder
    except OSError as error:
        raise UserError(f"cannot be read: {error}", where=root.location) from error
    raise UserError(f"no audit here (no {AUDIT})", where=root.location, fix="make one with `proctor audit SPEC`")


def local_audit(folder: Folder) -> Path:
    """A local directory with the files of an audit, which lasts as long as this process; not to be written to.

    Raises:
        UserError: a file is gone, or the storage fails.
    """
    if isinstance(folder, LocalFolder):
        return folder.root
    try:
        there = set(folder.names())
        names = [name for name in (AUDIT, ANSWERS, TOKENS, REPLAYED) if name in there]
        copies = folder.local_copies(names)
    except OSError as error:
        raise UserError(f"cannot be read: {error}", where=folder.location) from error
    together = copies[0].parent.parent / "together"
    together.mkdir(exist_ok=True)
    for copy in copies:  # copies lie apart, each under the tag of what it is a copy of
        (together / copy.name).unlink(missing_ok=True)
        (together / copy.name).symlink_to(copy)
    return together


def check_writable(place: Path) -> None:
    """Looks, before anything is asked, whether an audit can be written to `place`; nothing is left there.

    Raises:
        UserError: it cannot.
    """
    there = next((folder for folder in (place, *place.parents) if os.path.lexists(folder)), place)
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        fix = "give another directory with --out"
        raise UserError(f"cannot be written: {error.strerror or error}", where=str(place), fix=fix) from error


def place_for(spec: RunSpec, out: str | None) -> Path:
    """Where an audit of `spec` is to lie: `out`, or ``audit/`` in a local run directory.

    Raises:
        UserError: neither can be, or `out` holds another audit.
    """
    if out is None:
        if is_url(spec.run_dir):
            fix = "give a local directory with --out"
            raise UserError("an audit is written to a local directory, and this is a URL", where="run_dir", fix=fix)
        return Path(spec.run_dir) / FOLDER
    if is_url(out):
        raise UserError("not a local directory", where=f"--out {out}", fix="write it there, and copy it")
    if (Path(out) / AUDIT).exists():
        raise UserError("there is an audit here already", where=out, fix="give another --out, or move it away")
    return Path(out)
