"""What a spec evaluates: its source, its task and what is done to images, opened and checked against each other."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pyroaring import BitMap64

from proctor.images.rules import ImageRules
from proctor.images.setup import image_rules
from proctor.rows import UserError
from proctor.sources.base import Source
from proctor.sources.registry import source_of
from proctor.sources.samples import check_columns
from proctor.spec import PythonTaskSpec, RunSpec, anchored
from proctor.tasks import Task
from proctor.tasks.prompting import template_fields
from proctor.tasks.registry import make_task


class Material(NamedTuple):
    """A spec, its paths made absolute, and what follows from it before any engine is started."""

    spec: RunSpec
    source: Source
    task: Task
    expected: BitMap64
    images: ImageRules


def material_of(spec: RunSpec) -> Material:
    """Opens the source and makes the task.

    Raises:
        UserError: the source, its columns or the task do not fit together, or there are no rows.
    """
    spec = anchored(spec, Path.cwd())  # workers have working directories of their own
    source = source_of(spec)
    check_columns(source.columns(), spec.source.columns)
    _check_template(spec, source)
    task = make_task(spec.task, spec.source.columns)
    images = image_rules(spec)
    expected = source.expected()
    if not expected:
        raise UserError("no rows: nothing to evaluate", where=spec.source.path)
    return Material(spec, source, task, expected, images)


def _check_template(spec: RunSpec, source: Source) -> None:
    """A template that names no column of the source would cost every row."""
    template = None if isinstance(spec.task, PythonTaskSpec) else spec.task.prompt
    names = [] if template is None else template_fields(template)
    pictured = [name for name in names if name in spec.source.columns.images]
    if pictured:
        raise UserError(
            f"{pictured[0]!r} is an image column", where="task.prompt", fix="leave it out: images stand before the text"
        )
    missing = [name for name in names if name not in source.columns().names]
    if missing:
        columns = ", ".join(source.columns().names)
        raise UserError(f"no column {missing[0]!r} in the source", where="task.prompt", fix=f"there are: {columns}")
