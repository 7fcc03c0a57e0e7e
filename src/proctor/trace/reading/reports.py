"""Reports of Nsight Systems (``.nsys-rep``): exported by the user's own ``nsys`` into the cache, then read as exports.

Nothing is put beside the report. An export is kept by the report's content, so that a second look needs no ``nsys``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from proctor.rows import UserError
from proctor.trace.model import Note, Severity
from proctor.trace.reading.cache import cache_directory, content_key, part_of, prune
from proctor.trace.reading.opening import open_export
from proctor.trace.trace import Trace

_TOTAL_BYTES = 20 << 30
_SHOWN = 400
_NEED = "install Nsight Systems, or export on the machine that recorded it: nsys export --type sqlite REPORT"


def open_report(path: Path) -> Trace:
    """Opens a report through an export of it.

    Raises:
        UserError: there is no ``nsys``, or it refuses the report.
    """
    notes = list(_stale(path))
    place = cache_directory() / "exports" / f"{content_key(path)}.sqlite"
    if place.is_file():
        with contextlib.suppress(OSError):
            os.utime(place)
        try:
            return open_export(place, path, notes)
        except UserError:  # not what was put there: export again
            place.unlink(missing_ok=True)
    nsys = shutil.which("nsys")
    if nsys is None:
        raise _no_nsys(path)
    try:
        with part_of(place) as part:
            _export(nsys, path, part)
    except OSError:
        return _open_without_cache(nsys, path, notes)
    prune(place.parent, _TOTAL_BYTES, keep=place)
    return open_export(place, path, notes)


def _open_without_cache(nsys: str, path: Path, notes: list[Note]) -> Trace:
    """An open database needs no name: the directory is gone before the first query."""
    with tempfile.TemporaryDirectory(prefix="proctor-", ignore_cleanup_errors=True) as directory:
        export = Path(directory) / "export.sqlite"
        _export(nsys, path, export)
        return open_export(export, path, notes)


def _export(nsys: str, report: Path, target: Path) -> None:
    """Has ``nsys`` write `target`.

    Raises:
        UserError: it does not.
    """
    command = [nsys, "export", "--type", "sqlite", "--force-overwrite", "true", "--output", str(target)]
    try:
        done = subprocess.run(
            [*command, str(report.resolve())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=target.parent,
            check=False,
        )
    except OSError as error:
        raise UserError(f"nsys does not run: {error.strerror}", where=nsys) from error
    if done.returncode == 0 and target.is_file():
        with target.open("rb") as file:
            if file.read(16) == b"SQLite format 3\x00":
                return
    lines = [" ".join(line.split()) for line in done.stdout.decode("utf-8", "replace").splitlines() if line.strip()]
    said = " | ".join(lines[-3:])[-_SHOWN:] or "nothing"
    raise UserError(
        f"nsys could not export it (exit code {done.returncode}), and said: {said}",
        where=str(report),
        fix=f"a report newer than {nsys} needs the nsys that recorded it, or a newer one",
    )


def _no_nsys(path: Path) -> UserError:
    export = path.with_suffix(".sqlite")
    if export.is_file():
        return UserError("nsys, which reads reports, is not on PATH", where=str(path), fix=f"or give {export.name}")
    return UserError("nsys, which reads reports, is not on PATH", where=str(path), fix=_NEED)


def _stale(path: Path) -> list[Note]:
    """A warning where an older export lies beside the report: ``nsys stats`` would take it without a word."""
    export = path.with_suffix(".sqlite")
    with contextlib.suppress(OSError):
        if export.stat().st_mtime_ns < path.stat().st_mtime_ns:
            return [
                Note(
                    "stale_export",
                    Severity.WARNING,
                    f"{export.name} beside the report is older than it",
                    "it is not read here, but `nsys stats` reads it unless told --force-export=true",
                    f"remove {export.name} or export it again",
                )
            ]
    return []
