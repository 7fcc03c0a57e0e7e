"""Where a bench of compilation is written."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile

from proctor.compile.store import BENCH
from proctor.rows import UserError
from proctor.spec import RunSpec
from proctor.storage.connect import is_url

_ROOM = 1 << 20
"""Bytes that there has to be room for; a bench with its page takes less."""
FOLDER = "compile"
"""Folder of a run directory that its bench lies in."""


def place_for(spec: RunSpec, out: Path | None) -> Path:
    """Where a bench of `spec` is to lie: `out`, or ``compile/`` in a local run directory.

    Raises:
        UserError: neither can be, or there is a bench already.
    """
    if out is None and is_url(spec.run_dir):
        fix = "give a local directory with --out"
        raise UserError("a bench is written to a local directory, and this is a URL", where="run_dir", fix=fix)
    place = out or Path(spec.run_dir) / FOLDER
    if (place / BENCH).exists():
        raise UserError("there is a bench here already", where=str(place), fix="give another --out, or move it away")
    _try_out(place)
    return place


def _try_out(place: Path) -> None:
    """Writes a file where the bench will lie: after minutes is too late to find out that it cannot. Leaves nothing."""
    there = next((one for one in (place, *place.absolute().parents) if one.exists()), place)
    try:
        with TemporaryFile(dir=there) as file:
            file.write(bytes(_ROOM))
            file.flush()
    except OSError as error:
        what = f"a bench cannot be written there: {error.strerror or error}"
        raise UserError(what, where=str(place), fix="give another --out") from error
