"""From an opened directory to a side of a comparison."""

from __future__ import annotations

from proctor.paired.sides import Given, Side, given_of
from proctor.results import RunDir
from proctor.results.parts import parts_of
from proctor.rows import UserError
from proctor.storage.folder import LocalFolder


def given_side(run: RunDir, checkpoint: str, label: str) -> tuple[Side, list[str]]:
    """A checkpoint of a run, the last one if none is named; and the names of all of them.

    Args:
        run: of an opened directory, whose own files were looked at (see `proctor.view.browse.runs.open_run`).
        checkpoint: its name; empty for the last one.
        label: what the run is called.

    Raises:
        UserError: there is no such checkpoint, the run is damaged, or a part of its records is a symbolic link.
    """
    names = [side.checkpoint for side in given_of(label, run, None).sides]
    given: Given = given_of(label, run, checkpoint or names[-1])
    _check_parts(run, given.sides[0].checkpoint)
    return given.sides[0], names


def _check_parts(run: RunDir, checkpoint: str) -> None:
    if not isinstance(run.results, LocalFolder):
        return
    for name in parts_of(run.results, checkpoint):
        if (run.results.root / name).is_symlink():
            raise UserError("a symbolic link, which is not followed", where=f"{run.results.location}/{name}")
