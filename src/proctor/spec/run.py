"""The whole run: source -> engine -> task -> run directory, and the limits it keeps."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from proctor.spec.audit import AuditSpec
from proctor.spec.capacity import CapacitySpec
from proctor.spec.engine import EngineSpec, LocalEngineBase
from proctor.spec.images import ImagesSpec
from proctor.spec.metrics import MetricsSpec
from proctor.spec.model import LONGEST, MOST, MOST_ID, PathText, SpecModel, without_secrets
from proctor.spec.requires import PackageName, Specifiers
from proctor.spec.source import SourceSpec
from proctor.spec.task import TaskSpec
from proctor.spec.trackers import TrackerSpec, tracker_name


class SamplingSpec(SpecModel):
    """How tokens are chosen."""

    max_tokens: int = Field(default=64, ge=1, le=MOST)
    """Most tokens an answer may have."""
    temperature: float = Field(default=0.0, ge=0)
    """0 is greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus share; 1 keeps every token."""
    seed: int = Field(default=0, ge=0, le=MOST_ID)
    """Seed for sampling; combined with the row id, so that a row's draw does not depend on its neighbours."""
    stop: list[str] = []
    """Texts that end an answer; they are not part of it."""
    logprobs: bool = False
    """Store the log-probability of each chosen token."""


class LimitsSpec(SpecModel):
    """How long to wait, how often to try, how much error to accept."""

    stall_seconds: float = Field(default=120.0, gt=0, le=LONGEST)
    """An engine that makes no progress for so long is ended and started anew."""
    load_seconds: float = Field(default=900.0, gt=0, le=LONGEST)
    """Longest time that loading a model may take, and that an engine at work may compile for without an answer."""
    init_attempts: int = Field(default=3, ge=1, le=MOST)
    """Starts of an engine that may fail one after another before its breaker opens."""
    row_seconds: float = Field(default=60.0, gt=0, le=LONGEST)
    """Longest time that the task may take to make a prompt, or to mark an answer, before it costs the row."""
    sweeps: int = Field(default=3, ge=1, le=MOST)
    """Passes over the rows that are still unanswered."""
    max_error_rate: float = Field(default=0.01, ge=0, le=1)
    """Share of rows that may end in an error. A complete run above it ends with exit code 2."""
    min_rows: int = Field(default=1000, ge=1, le=MOST)
    """Rows of a checkpoint that must have come back before `on_error_rate` looks at their error rate."""
    on_error_rate: Literal["continue", "stop"] = "continue"
    """What to do with a checkpoint whose error rate passes `max_error_rate`: finish it all the same, or stop it early.
    A stopped run is incomplete (exit code 3) and can be resumed."""


class StreamSpec(SpecModel):
    """How rows flow through Ray Data. Has no influence on the answers."""

    block_rows: int = Field(default=256, ge=1, le=MOST)
    """Most rows in a block: the unit of reading, of writing, and of what a killed worker costs."""
    block_mb: float = Field(default=16.0, gt=0, le=1_000_000)
    """Most megabytes of source data in a block (a single larger row still passes)."""
    blocks_in_flight: int = Field(default=3, ge=1, le=MOST)
    """Blocks that one engine is handed at a time, so that it never waits for the next one."""
    prepare_cpus: float = Field(default=0.5, gt=0)
    """CPUs that Ray reserves for a task that reads and prepares rows."""
    checkpoints_at_once: int = Field(default=1, ge=1, le=MOST)
    """Checkpoints whose engines work side by side. Rows are then read and prepared once for all of them."""


class RaySpec(SpecModel):
    """Which Ray to use."""

    address: str | None = None
    """Address of a running cluster (``auto`` finds one). Default: a Ray of the run's own on this machine."""
    cpus: int | None = Field(default=None, ge=1, le=MOST)
    """Logical CPUs of a Ray of the run's own. Default: those of the machine, and as many as the engines need."""
    object_store_mb: int | None = Field(default=None, ge=80, le=MOST)
    """Object store of a Ray of the run's own. Default: Ray's."""


WRITABLE = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "file")
"""Schemes of URLs that a run directory may have."""


class StorageSpec(SpecModel):
    """How object storage is reached. Credentials are not set here: they come from the environment or the machine."""

    endpoint: str | None = None
    """Address of an S3-compatible server (``http://host:9000``). Default: the provider's own."""
    region: str | None = None
    """Region of the bucket. Default: what the environment says."""
    anonymous: bool = False
    """Send no credentials, for public buckets."""
    attempts: int = Field(default=10, ge=1, le=MOST)
    """How often a request is sent that ends in a 5xx, a cut connection or a timeout."""
    read_seconds: float = Field(default=30.0, gt=0, le=LONGEST)
    """Longest silence of the server within a request."""
    retry_seconds: float = Field(default=120.0, gt=0, le=LONGEST)
    """Time after which a request is not sent again."""

    @field_validator("endpoint")
    @classmethod
    def _is_a_server(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if not value.startswith(("http://", "https://")):
            raise ValueError("an endpoint begins with http:// or https://")
        return without_secrets(value)


class RunSpec(SpecModel):
    """One evaluation run."""

    run_dir: PathText
    """Directory for everything the run knows, also ``s3://``, ``gs://`` or ``az://``. Running the same spec again
    resumes there."""
    source: SourceSpec
    """Where rows come from."""
    engine: EngineSpec
    """What runs the model."""
    task: TaskSpec
    """What is asked and how it is marked."""
    sampling: SamplingSpec = SamplingSpec()
    """How tokens are chosen."""
    images: ImagesSpec = ImagesSpec()
    """What is done to images before an engine gets them."""
    limits: LimitsSpec = LimitsSpec()
    """How long to wait, how often to try, how much error to accept."""
    stream: StreamSpec = StreamSpec()
    """How rows flow."""
    ray: RaySpec = RaySpec()
    """Which Ray to use."""
    storage: StorageSpec = StorageSpec()
    """How URLs of object storage are reached."""
    capacity: CapacitySpec | None = None
    """What the run may take of each node, as `proctor plan` works it out. Default: what `proctor plan` says, and
    no limits for a small run."""
    audit: AuditSpec | None = None
    """An audit of a sample of the rows before the run; its verdict stands in the run's report. Default: none."""
    requires: dict[PackageName, Specifiers] = {}
    """Versions that the run insists on, by package: ``{python: "3.11", ray: ">=2.60,<2.61", vllm: "==0.32.0"}``. A bare
    version stands for all that begin so. Checked on the driver and on every node before anything is started;
    `python`, `proctor` and `ray` in Proctor's own environment, any other package in the engine's. Default: none."""
    trackers: list[TrackerSpec] = []
    """Experiment trackers that are told how the run goes. None of them can hold the run up or end it."""
    metrics: MetricsSpec | None = None
    """Prometheus metrics of the run. Default: none."""

    @property
    def engines_at_once(self) -> int:
        """Engines that work at the same time: the replicas of as many checkpoints as take part at once."""
        return self.engine.replicas * min(self.stream.checkpoints_at_once, len(self.engine.checkpoints))

    @field_validator("run_dir")
    @classmethod
    def _can_be_written_to(cls, value: str) -> str:
        scheme, found, _ = value.partition("://")
        if found and scheme not in WRITABLE:
            known = ", ".join(f"{name}://" for name in WRITABLE)
            raise ValueError(f"a run directory is a local directory or one of {known}")
        return without_secrets(value) if found else value

    @field_validator("trackers")
    @classmethod
    def _differ_by_name(cls, value: list[TrackerSpec]) -> list[TrackerSpec]:
        names = [tracker_name(tracker) for tracker in value]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two trackers are named {twice[0]!r}: give each a name of its own")
        return value

    @model_validator(mode="after")
    def _one_order_of_checkpoints(self) -> RunSpec:
        if self.engine.mode == "sequential" and self.stream.checkpoints_at_once > 1:
            raise ValueError(
                "engine.mode: sequential takes the checkpoints one after another, stream.checkpoints_at_once several "
                "at a time: choose one of them"
            )
        return self

    @model_validator(mode="after")
    def _model_has_a_budget(self) -> RunSpec:
        if self.images.resize == "model" and not isinstance(self.engine, LocalEngineBase):
            raise ValueError(
                f"images.resize: model is for engines that load a model directory, not {self.engine.kind}; "
                "write a number of pixels"
            )
        return self

    @model_validator(mode="after")
    def _answer_fits_model(self) -> RunSpec:
        engine = self.engine
        limit = engine.max_model_len if isinstance(engine, LocalEngineBase) else None
        if limit is not None and self.sampling.max_tokens >= limit:
            raise ValueError(
                f"sampling.max_tokens ({self.sampling.max_tokens}) leaves no room for a prompt "
                f"in engine.max_model_len ({limit})"
            )
        return self
