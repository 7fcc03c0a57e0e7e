"""Everything one run works with, put together once: the spec and what was made of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyroaring import BitMap64

from proctor.engines import EngineConfig
from proctor.engines.config import engine_config
from proctor.images.rules import ImageRules
from proctor.images.setup import image_rules
from proctor.results import RunDir
from proctor.rows import Sampling, UserError
from proctor.rows.records import record_schema
from proctor.runner.infer import EngineSetup
from proctor.sources.base import Source
from proctor.sources.registry import source_of
from proctor.sources.samples import check_columns
from proctor.spec import Checkpoint, PythonTaskSpec, RunSpec, anchored
from proctor.spec.engine import LocalEngineBase
from proctor.storage.connect import StorageOptions
from proctor.supervise import Settings, preflight
from proctor.tasks import Task
from proctor.tasks.prompting import template_fields
from proctor.tasks.registry import make_task


@dataclass(frozen=True)
class Exam:
    """A run's spec, and the source, task and directory that follow from it."""

    spec: RunSpec
    run: RunDir
    source: Source
    task: Task
    expected: BitMap64
    images: ImageRules = field(default_factory=ImageRules)

    @classmethod
    def of(cls, spec: RunSpec) -> Exam:
        """Opens the source and makes the task.

        Raises:
            UserError: the source, its columns or the task do not fit together.
        """
        spec = anchored(spec, Path.cwd())  # workers have working directories of their own
        storage = StorageOptions(**spec.storage.model_dump())
        source = source_of(spec)
        check_columns(source.columns(), spec.source.columns)
        _check_template(spec, source)
        task = make_task(spec.task, spec.source.columns)
        images = image_rules(spec)
        expected = source.expected()
        if not expected:
            raise UserError("no rows: nothing to evaluate", where=spec.source.path)
        return cls(spec, RunDir(spec.run_dir, storage), source, task, expected, images)

    @property
    def record_schema(self) -> pa.Schema:
        """Schema of the records."""
        return record_schema(self.task.columns)

    def checkpoint(self, name: str) -> Checkpoint:
        """The checkpoint of that name."""
        return next(c for c in self.spec.engine.checkpoints if c.name == name)

    def engine_config(self, checkpoint: Checkpoint) -> EngineConfig:
        """The configuration of the engine that evaluates `checkpoint`."""
        return engine_config(self.spec.engine, checkpoint, str(self.run.folder.workspace("faults")))

    def engine_setup(self, checkpoint: str) -> EngineSetup:
        """What an engine actor needs to evaluate `checkpoint`."""
        spec, limits = self.spec, self.spec.limits
        python, env = _environment(spec)
        return EngineSetup(
            config=self.engine_config(self.checkpoint(checkpoint)),
            settings=Settings(
                stall_seconds=limits.stall_seconds,
                load_seconds=limits.load_seconds,
                init_attempts=limits.init_attempts,
                window=2 * spec.engine.batch_size,
                stalls_dir=self.run.folder.workspace("stalls"),
                python=python,
                env=env,
            ),
            sampling=Sampling(**{**spec.sampling.model_dump(), "stop": tuple(spec.sampling.stop)}),
            run=self.run.folder,
        )

    def check_engines(self) -> None:
        """Asks each engine, in its own interpreter, for mistakes that need no weights.

        Raises:
            UserError: the first mistake found.
        """
        python, env = _environment(self.spec)
        for checkpoint in self.spec.engine.checkpoints:
            preflight(self.engine_config(checkpoint), python, env)


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


def _environment(spec: RunSpec) -> tuple[str | None, dict[str, str]]:
    engine = spec.engine
    return (engine.python, engine.env) if isinstance(engine, LocalEngineBase) else (None, {})
