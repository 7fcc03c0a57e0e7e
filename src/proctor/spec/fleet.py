"""A fleet: one run spec, times checkpoints, tasks and choices of any other key, on one Ray cluster."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, JsonValue, Tag, field_validator

from proctor.spec.engine import Checkpoint
from proctor.spec.model import LONGEST, MOST, PathText, SpecModel, without_secrets
from proctor.spec.notify import NotifySpec
from proctor.spec.run import WRITABLE
from proctor.spec.task import TaskSpec

NAME = r"^[A-Za-z0-9][A-Za-z0-9._=+@-]*$"
"""Form of names that become part of a cell's name."""
DECIDED = (
    "run_dir",
    "engine.checkpoints",
    "engine.mode",
    "stream.checkpoints_at_once",
    "task",
    "ray",
)
"""Keys of a run that a fleet gives itself; none of them can be a choice of the matrix."""

TaskName = Annotated[str, Field(pattern=NAME, max_length=60)]


class GlobSpec(SpecModel):
    """Every checkpoint that a pattern finds."""

    glob: PathText
    """Path or URL in which ``*``, ``?`` and ``[...]`` stand for parts of names: ``/models/run-7/step-*``,
    ``s3://bucket/*/final``. Only checkpoints that are whole count."""


class WatchSpec(SpecModel):
    """Every checkpoint that a directory holds, and each one that comes to it later."""

    watch: PathText
    """Path or URL of the directory. Each directory in it is a checkpoint, once it is whole: ``config.json`` and all
    its weights are there, and nothing has changed between two looks."""
    match: str = Field(default="*", min_length=1)
    """Only directories whose name fits this pattern."""


def _form(value: Any) -> str | None:
    """Which of its forms `MatrixSpec.checkpoints` has."""
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict) and {"glob", "watch"} <= value.keys():
        return None
    if isinstance(value, WatchSpec) or (isinstance(value, dict) and "watch" in value):
        return "a directory"
    return "a pattern" if isinstance(value, GlobSpec | dict) else None


Checkpoints = Annotated[
    Annotated[list[Checkpoint], Tag("a list")]
    | Annotated[GlobSpec, Tag("a pattern")]
    | Annotated[WatchSpec, Tag("a directory")],
    Discriminator(
        _form,
        custom_error_type="checkpoints",
        custom_error_message="must be a list of checkpoints, or a block with glob, or one with watch",
    ),
]


class MatrixSpec(SpecModel):
    """What the cells are: every checkpoint, times every task, times every combination of choices."""

    checkpoints: Checkpoints | None = None
    """A list as in a run's `engine.checkpoints`, a pattern, or a directory to watch. Default: those of the run spec."""
    tasks: dict[TaskName, TaskSpec] = {}
    """Tasks by name. Default: the task of the run spec."""
    set: dict[str, list[JsonValue]] = {}
    """Choices: for a key of the run spec by its dotted path, the values it takes."""

    @field_validator("checkpoints", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return [{"name": PurePosixPath(v).name, "path": v} if isinstance(v, str) else v for v in value]

    @field_validator("set")
    @classmethod
    def _can_be_chosen(cls, value: dict[str, list[JsonValue]]) -> dict[str, list[JsonValue]]:
        for key, values in value.items():
            given = next((name for name in DECIDED if key == name or key.startswith(f"{name}.")), None)
            if given is not None:
                raise ValueError(f"{key} cannot be a choice: {_where_else(given)}")
            if not values:
                raise ValueError(f"{key} has no values, so that there would be no cells")
        return value


def _where_else(key: str) -> str:
    where = {
        "engine.checkpoints": "checkpoints stand in matrix.checkpoints",
        "task": "tasks stand in matrix.tasks",
        "run_dir": "each cell has a run directory of its own below fleet_dir",
        "ray": "the cluster stands in cluster",
    }
    return where.get(key, "it follows from way")


class FleetClusterSpec(SpecModel):
    """The Ray cluster that the fleet works on."""

    address: str = Field(default="http://127.0.0.1:8265", pattern=r"^https?://")
    """Address of the cluster's dashboard, which takes jobs."""
    gpus: float | None = Field(default=None, ge=0, le=MOST)
    """GPUs that the fleet uses at most. Default: all that the cluster has."""
    ticket: str | None = Field(default=None, min_length=1)
    """Name of a custom resource of which each job takes as many as it takes GPUs, for clusters that others use too.
    Default: none."""
    python: PathText | None = None
    """Python interpreter that runs the jobs, on the cluster's machines. Default: the one that runs the watcher."""

    @field_validator("address")
    @classmethod
    def _no_secrets(cls, value: str) -> str:
        return without_secrets(value)


class PrioritySpec(SpecModel):
    """Which cells come first."""

    match: str = Field(min_length=1)
    """Pattern (``*``, ``?``, ``[...]``) for names of cells."""
    priority: int = Field(ge=-MOST, le=MOST)
    """Higher comes first; cells without any have 0. The first pattern that fits a cell counts."""


class FleetMetricsSpec(SpecModel):
    """Prometheus metrics of the watcher."""

    port: int = Field(ge=1, le=65535)
    """Port on 127.0.0.1 on which they are served."""


class FleetSpec(SpecModel):
    """One fleet of runs."""

    fleet_dir: PathText
    """Directory for everything the fleet knows, also ``s3://``, ``gs://`` or ``az://``. Each unit's run directory lies
    in its ``cells/``."""
    run: PathText | dict[str, JsonValue]
    """What every cell is: the path of a run spec, or the keys of one. Its `run_dir` has no meaning here; what the
    matrix gives may be missing."""
    matrix: MatrixSpec = MatrixSpec()
    """What the cells differ in."""
    way: Literal["jobs", "parallel", "sequential"] = "jobs"
    """How GPUs are spent. ``jobs``: a job for each cell. ``parallel``: a job for up to `at_once` checkpoints, whose
    engines work side by side on rows that are read and prepared once. ``sequential``: one job for all checkpoints of a
    task, one after another, by swapping weights. The records are the same."""
    at_once: int = Field(default=4, ge=1, le=MOST)
    """``parallel``: checkpoints of a job."""
    lanes: int = Field(default=1, ge=1, le=MOST)
    """``sequential``: jobs over which the checkpoints of a task are spread."""
    cluster: FleetClusterSpec = FleetClusterSpec()
    """Where."""
    gpus_per_unit: float | None = Field(default=None, ge=0, le=MOST)
    """GPUs that a job takes; no fewer than all its engines. Default: as many."""
    max_concurrent: int | None = Field(default=None, ge=1, le=MOST)
    """Jobs at the same time at most. Default: as many as there are GPUs for, and no more than the cluster has CPUs."""
    priority: list[PrioritySpec] = []
    """Which cells come first. Default: the order in which they are expanded."""
    reap_after: float = Field(default=7200.0, gt=0, le=LONGEST)
    """Seconds without progress in its run directory after which a job is stopped and queued again."""
    pending_seconds: float = Field(default=900.0, gt=0, le=LONGEST)
    """Seconds that a submitted job may take to start."""
    stop_seconds: float = Field(default=30.0, gt=0, le=LONGEST)
    """Seconds that a job which is asked to stop may take, before it is ended."""
    max_attempts: int = Field(default=3, ge=1, le=MOST)
    """Times that a unit is tried. What the cluster itself interrupts does not count."""
    notify: NotifySpec | None = None
    """Who is told. Default: nobody."""
    metrics: FleetMetricsSpec | None = None
    """Prometheus metrics. Default: none."""

    @property
    def grows(self) -> bool:
        """Whether checkpoints may come later, without a change of the spec."""
        return isinstance(self.matrix.checkpoints, GlobSpec | WatchSpec)

    @field_validator("fleet_dir")
    @classmethod
    def _can_be_written_to(cls, value: str) -> str:
        scheme, found, _ = value.partition("://")
        if found and scheme not in WRITABLE:
            known = ", ".join(f"{name}://" for name in WRITABLE)
            raise ValueError(f"a fleet directory is a local directory or one of {known}")
        return without_secrets(value) if found else value
