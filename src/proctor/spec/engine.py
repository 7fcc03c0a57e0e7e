"""What runs the model, and the checkpoints under evaluation."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, field_validator, model_validator

from proctor.spec.compile import CompileSpec, VllmCompileSpec
from proctor.spec.model import LONGEST, MOST, MOST_ID, PathText, SpecModel, without_secrets
from proctor.spec.numerics import NumericsSpec


class Checkpoint(SpecModel):
    """One set of weights under evaluation."""

    name: str = Field(min_length=1, max_length=120, pattern=r"^[A-Za-z0-9][A-Za-z0-9._=+@-]*$")
    """Name in records, metrics and charts: letters, digits and ``. _ = + @ -``."""
    path: PathText
    """Model directory; for ``openai`` the model's name on the server."""


class FaultSpec(SpecModel):
    """A fault planted in front of an engine, to rehearse what a run does about it. Works with every engine."""

    kind: Literal[
        "raise", "crash", "kill", "exit", "oom", "stall", "hold_gil", "stop", "blank", "truncate", "delay", "reject"
    ]
    """What happens when a chosen row reaches the engine: ``raise`` an exception out of the engine, ``crash`` by
    SIGSEGV, ``kill`` the process (SIGKILL, as the system does when memory runs out), ``exit`` the process, ``stall``
    for ever, ``hold_gil`` for ever, ``stop`` the process (SIGSTOP), run out of memory (``oom``), answer ``blank``,
    ``truncate`` the answer as a limit of tokens does, answer late (``delay``), or ``reject`` the row."""
    rows: list[Annotated[int, Field(ge=0, le=MOST_ID)]] = []
    """Ids of the chosen rows."""
    every: int | None = Field(default=None, ge=1, le=MOST)
    """Choose rows by ``row_id % every < below`` instead."""
    below: int = Field(default=1, ge=1, le=MOST)
    """See `every`."""
    times: int | None = Field(default=None, ge=1, le=MOST)
    """Happen so many times in the whole run, then never again. Default: always."""
    seconds: float = Field(default=1.0, gt=0, le=LONGEST)
    """How late a ``delay`` answers."""
    checkpoint: str | None = None
    """Only for the checkpoint of this name. Default: all."""

    @model_validator(mode="after")
    def _chooses_rows(self) -> FaultSpec:
        if bool(self.rows) == (self.every is not None):
            raise ValueError("a fault chooses rows either by `rows` or by `every`")
        return self


class EngineBase(SpecModel):
    """What all engines share."""

    checkpoints: list[Checkpoint] = Field(min_length=1)
    """The checkpoints to evaluate, in this order. A plain path is enough: its last part becomes the name."""
    batch_size: int = Field(default=16, ge=1, le=MOST)
    """Rows the engine works on at once: micro-batch (transformers), ``max_num_seqs`` (vllm), open requests (openai)."""
    replicas: int = Field(default=1, ge=1, le=MOST)
    """Engines that work side by side, each in a process of its own."""
    cpus_per_replica: float = Field(default=1.0, gt=0)
    """CPUs that Ray reserves for one engine."""
    gpus_per_replica: float = Field(default=0.0, ge=0)
    """GPUs that Ray reserves for one engine."""
    mode: Literal["restart", "sequential"] = "restart"
    """How the checkpoints follow each other. ``restart`` starts engines for each. ``sequential`` starts them once and
    swaps the weights in that were read while they worked for the checkpoint before. An engine's answers to fixed probes
    have to prove the swap: until then it serves nothing, and otherwise it is started anew. The checkpoints have to be
    of one architecture."""
    fingerprints: PathText | None = None
    """``sequential``: where the answers of started engines to the probes are kept, also ``s3://`` and the like. Runs
    may share it. Default: ``fingerprints/`` in the run directory."""
    reference: Literal["first", "beside"] = "first"
    """``sequential``: who answers the probes for a checkpoint that is not known yet: ``first``, the first engine that
    comes to it and is started anew for it; ``beside``, a second engine that is started beside each one while it works
    for the checkpoint before, where there is memory for two."""
    faults: list[FaultSpec] = []
    """Faults to plant, for rehearsals."""

    @field_validator("checkpoints", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return [{"name": PurePosixPath(v).name, "path": v} if isinstance(v, str) else v for v in value]

    @field_validator("checkpoints")
    @classmethod
    def _unique(cls, value: list[Checkpoint]) -> list[Checkpoint]:
        names = [checkpoint.name for checkpoint in value]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ValueError(f"checkpoint names must be unique, {', '.join(doubled)} is there more than once")
        return value

    @field_validator("fingerprints")
    @classmethod
    def _no_secrets(cls, value: str | None) -> str | None:
        return without_secrets(value) if value is not None and "://" in value else value

    @model_validator(mode="after")
    def _faults_name_checkpoints(self) -> EngineBase:
        names = {checkpoint.name for checkpoint in self.checkpoints}
        for fault in self.faults:
            if fault.checkpoint is not None and fault.checkpoint not in names:
                raise ValueError(f"a fault names the checkpoint {fault.checkpoint!r}; there are only {sorted(names)}")
        return self


class LocalEngineBase(EngineBase):
    """What engines that load a model directory share."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Type of the weights in memory; ``auto`` is what the model directory says."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the model runs; ``auto`` is a GPU when the replica has one."""
    max_model_len: int | None = Field(default=None, ge=1, le=MOST)
    """Most tokens of prompt and answer together. Default: the model's own limit."""
    python: PathText | None = None
    """Python interpreter that runs the engine's process, for an engine installed in an environment of its own, e.g.
    ``.venv-vllm/bin/python`` (relative to the spec file). Default: the one that runs Proctor."""
    env: dict[Annotated[str, Field(pattern=r"^[^=\x00]+$")], Annotated[str, Field(pattern=r"^[^\x00]*$")]] = {}
    """Environment variables for the engine's process."""
    options: dict[str, JsonValue] = {}
    """Further arguments for the engine's own constructor, checked against the installed version."""


class TransformersEngineSpec(LocalEngineBase):
    """Hugging Face transformers, in micro-batches."""

    kind: Literal["transformers"]
    """Which engine."""
    compile: CompileSpec | None = None
    """Compile parts of the vision encoder. Default: nothing is compiled."""


class VllmEngineSpec(LocalEngineBase):
    """vLLM, fed continuously."""

    kind: Literal["vllm"]
    """Which engine."""
    compile: VllmCompileSpec | None = None
    """What vLLM does to make its vision encoder faster. Default: as vLLM has it."""
    multiprocessing: bool = False
    """Run vLLM's engine core and its workers in processes of their own, as vLLM does by default. Without it the engine
    starts faster and is one process, except for the workers of tensor parallelism."""


class OpenAIEngineSpec(EngineBase):
    """Any OpenAI-compatible server, over HTTP."""

    kind: Literal["openai"]
    """Which engine."""
    base_url: str = Field(pattern=r"^https?://")
    """Address of the server, e.g. ``http://127.0.0.1:8000/v1``."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key. The key itself never stands in a spec."""
    timeout_seconds: float = Field(default=120.0, gt=0, le=LONGEST)
    """Longest wait for one answer."""
    max_retries: int = Field(default=5, ge=0, le=MOST)
    """Tries after a rate limit or a server error, before the row is left to the next sweep."""
    mode: Literal["restart"] = "restart"
    """A server's weights are not this engine's to change."""
    token_ids: bool = False
    """Ask for token ids, as vLLM's server gives them (``return_token_ids``). Other servers refuse what they do not
    know, so it is off by default."""


class ScriptedEngineSpec(EngineBase):
    """A real child process that answers deterministically without a model: for dry runs and tests."""

    kind: Literal["scripted"]
    """Which engine."""
    answer: str = "answer {row_id}"
    """The answer to every row. ``{row_id}``, ``{n_images}``, ``{prompt}`` (its text) and ``{checkpoint}`` (the last
    part of its path) are filled in."""
    answers: dict[str, str] = {}
    """Answers of single rows, by row id."""
    dtype: Literal["auto", "float64", "float32", "bfloat16", "float16"] = "auto"
    """Number format of the pseudo-model, see `numerics`; ``auto`` is float32."""
    row_ms: float = Field(default=0.0, ge=0, le=1000 * LONGEST)
    """Milliseconds of work that one row takes."""
    load_seconds: float = Field(default=0.0, ge=0, le=LONGEST)
    """Seconds that loading takes."""
    load_failures: int = Field(default=0, ge=0, le=MOST)
    """How many of the first loads fail."""
    close_seconds: float = Field(default=0.0, ge=0, le=LONGEST)
    """Seconds that closing takes."""
    helpers: int = Field(default=0, ge=0, le=1000)
    """Idle processes that the engine starts beside itself, as vLLM starts its workers."""
    swap: Literal["ok", "refuse", "raise", "stale", "hang", "stop", "crash"] = "ok"
    """What a swap to another checkpoint does: succeed, be refused, raise, leave the old checkpoint in place without a
    word (``stale``), never end (``hang``), or stop (``stop``, by SIGSTOP) or end the process (``crash``)."""
    swap_at: list[str] = []
    """Only a swap to a checkpoint whose path ends in one of these names does that, others succeed. Default: each."""
    swap_times: int | None = Field(default=None, ge=1, le=MOST)
    """How many of those swaps do that in the whole run, whichever engine's they are; then they succeed. Default:
    all."""
    numerics: NumericsSpec | None = None
    """Answers come from a pseudo-model instead, token by token, with the differences that are planted in it."""


EngineSpec = Annotated[
    TransformersEngineSpec | VllmEngineSpec | OpenAIEngineSpec | ScriptedEngineSpec, Field(discriminator="kind")
]
