"""Everything one run works with, put together once: the spec and what was made of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
from pyroaring import BitMap64

from proctor.engines import EngineConfig
from proctor.engines.config import engine_config, environment
from proctor.engines.sequence_check import check_sequence
from proctor.images.rules import ImageRules
from proctor.prepare.material import material_of
from proctor.prepare.probes import sampling_of
from proctor.results import RunDir
from proctor.rows import UserError
from proctor.rows.records import record_schema
from proctor.runner.infer import EngineSetup
from proctor.runner.only import rows_to_keep_to
from proctor.sources.base import Source
from proctor.sources.chosen import ChosenRows
from proctor.spec import Checkpoint, RunSpec
from proctor.storage.connect import StorageOptions
from proctor.storage.folder import open_folder
from proctor.supervise import Settings, preflight
from proctor.supervise.hotswap import SwapSetup
from proctor.tasks import Task


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
    def of(cls, spec: RunSpec, only: BitMap64 | None = None, *, fresh: bool = False) -> Exam:
        """Opens the source and makes the task.

        Args:
            spec: of the run.
            only: the rows to keep to; None is for those that a run in the same directory keeps to, or all.
            fresh: whether a run in the same directory is put aside.

        Raises:
            UserError: the source, its columns or the task do not fit together, or there are no such rows.
        """
        found = material_of(spec)
        run = RunDir(found.spec.run_dir, StorageOptions(**found.spec.storage.model_dump()))
        source, expected = found.source, found.expected
        if (rows := rows_to_keep_to(run, only, fresh=fresh)) is not None:
            source, expected = ChosenRows(source, rows, expected), rows
        return cls(found.spec, run, source, found.task, expected, found.images)

    @property
    def source_rows(self) -> int:
        """Rows of the source, whether or not the run has all of them."""
        return self.source.of if isinstance(self.source, ChosenRows) else len(self.expected)

    @property
    def only(self) -> BitMap64 | None:
        """The rows of the list that the run keeps to; None if it has all of its source."""
        return self.expected if isinstance(self.source, ChosenRows) else None

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
        python, env = environment(spec.engine)
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
            sampling=sampling_of(spec),
            run=self.run.folder,
            swap=self._swap_setup(),
        )

    def _swap_setup(self) -> SwapSetup | None:
        engine = self.spec.engine
        if engine.mode == "restart":
            return None
        options = StorageOptions(**self.spec.storage.model_dump())
        kept = self.run.folder.below("fingerprints")
        try:
            folder = kept if engine.fingerprints is None else open_folder(engine.fingerprints, options)
        except UserError as error:
            raise UserError(str(error), where="engine.fingerprints") from error
        return SwapSetup(folder, beside=engine.reference == "beside")

    def check_engines(self) -> None:
        """Asks each engine, in its own interpreter, for mistakes that need no weights.

        Raises:
            UserError: the first mistake found.
        """
        self._swap_setup()  # a place for fingerprints that is none
        python, env = environment(self.spec.engine)
        configs = {checkpoint.name: self.engine_config(checkpoint) for checkpoint in self.spec.engine.checkpoints}
        for config in configs.values():
            preflight(config, python, env)
        if self.spec.engine.mode == "sequential":
            check_sequence(configs, env, python)
