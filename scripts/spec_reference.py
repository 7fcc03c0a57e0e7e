"""Writes docs/spec.md from the spec's own docstrings; with ``--check`` only says whether it is up to date."""

from __future__ import annotations

import sys
import typing
from pathlib import Path
from typing import Any

from pydantic import BaseModel, JsonValue
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from proctor.spec import (
    AuditSpec,
    CapacitySpec,
    Checkpoint,
    ClassificationTaskSpec,
    ColumnsSpec,
    CometTrackerSpec,
    CompileSpec,
    DrivingTaskSpec,
    EffectSpec,
    ExactTaskSpec,
    FaultSpec,
    HuggingFaceSourceSpec,
    ImageFolderSourceSpec,
    ImagesSpec,
    JsonlSourceSpec,
    JsonlTrackerSpec,
    LanceSourceSpec,
    LimitsSpec,
    MdsSourceSpec,
    MetricsSpec,
    MlflowTrackerSpec,
    NumericsSpec,
    OpenAIEngineSpec,
    ParquetSourceSpec,
    PlantedKnobSpec,
    PythonTaskSpec,
    RaySpec,
    RegexTaskSpec,
    RunSpec,
    SamplingSpec,
    ScriptedEngineSpec,
    StorageSpec,
    StreamSpec,
    TensorBoardTrackerSpec,
    TransformersEngineSpec,
    VllmCompileSpec,
    VllmEngineSpec,
    WandbTrackerSpec,
    WebDatasetSourceSpec,
)
from proctor.spec.camera import CameraSpec
from proctor.spec.fleet import (
    FleetClusterSpec,
    FleetMetricsSpec,
    FleetSpec,
    GlobSpec,
    MatrixSpec,
    PrioritySpec,
    WatchSpec,
)
from proctor.spec.notify import NotifySpec

PAGE = Path(__file__).parent.parent / "docs" / "spec.md"
SECTIONS: list[tuple[str, type[BaseModel]]] = [
    ("spec", RunSpec),
    ("source: kind: mds", MdsSourceSpec),
    ("source: kind: parquet", ParquetSourceSpec),
    ("source: kind: jsonl", JsonlSourceSpec),
    ("source: kind: webdataset", WebDatasetSourceSpec),
    ("source: kind: imagefolder", ImageFolderSourceSpec),
    ("source: kind: huggingface", HuggingFaceSourceSpec),
    ("source: kind: lance", LanceSourceSpec),
    ("source.columns", ColumnsSpec),
    ("engine: kind: transformers", TransformersEngineSpec),
    ("engine: kind: vllm", VllmEngineSpec),
    ("engine.compile: kind: transformers", CompileSpec),
    ("engine.compile: kind: vllm", VllmCompileSpec),
    ("engine: kind: openai", OpenAIEngineSpec),
    ("engine: kind: scripted", ScriptedEngineSpec),
    ("engine.numerics", NumericsSpec),
    ("engine.numerics.knobs", PlantedKnobSpec),
    ("engine.numerics.effects", EffectSpec),
    ("engine.checkpoints", Checkpoint),
    ("engine.faults", FaultSpec),
    ("task: kind: driving", DrivingTaskSpec),
    ("task.camera", CameraSpec),
    ("task: kind: classification", ClassificationTaskSpec),
    ("task: kind: exact", ExactTaskSpec),
    ("task: kind: regex", RegexTaskSpec),
    ("task: kind: python", PythonTaskSpec),
    ("sampling", SamplingSpec),
    ("images", ImagesSpec),
    ("limits", LimitsSpec),
    ("stream", StreamSpec),
    ("ray", RaySpec),
    ("storage", StorageSpec),
    ("capacity", CapacitySpec),
    ("audit", AuditSpec),
    ("trackers: kind: jsonl", JsonlTrackerSpec),
    ("trackers: kind: tensorboard", TensorBoardTrackerSpec),
    ("trackers: kind: mlflow", MlflowTrackerSpec),
    ("trackers: kind: wandb", WandbTrackerSpec),
    ("trackers: kind: comet", CometTrackerSpec),
    ("metrics", MetricsSpec),
]
FLEET_SECTIONS: list[tuple[str, type[BaseModel]]] = [
    ("fleet", FleetSpec),
    ("fleet: matrix", MatrixSpec),
    ("fleet: matrix.checkpoints: a pattern", GlobSpec),
    ("fleet: matrix.checkpoints: a directory to watch", WatchSpec),
    ("fleet: cluster", FleetClusterSpec),
    ("fleet: priority", PrioritySpec),
    ("fleet: notify", NotifySpec),
    ("fleet: metrics", FleetMetricsSpec),
]
INTRO = """# The spec, key by key

One YAML file describes a run. Types are strict: a quoted `"False"` is text and not a boolean, and a key that does not
exist is refused with the nearest one that does. Any key can be overridden on the command line by its dotted path, with
the same checks: `proctor run spec.yaml --set engine.batch_size=16`.

This page is made from the docstrings of `proctor.spec` by `scripts/spec_reference.py`.
"""
FLEET_INTRO = """
# The fleet spec, key by key

A YAML file of its own describes [a fleet](fleet.md): the run spec in it has the keys above.
"""


def main() -> None:
    page = render()
    if "--check" in sys.argv[1:]:
        if not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != page:
            sys.exit(f"{PAGE.name} is out of date: run python scripts/spec_reference.py")
        return
    PAGE.write_text(page, encoding="utf-8")


def render() -> str:
    run, fleet = ("".join(section(*pair) for pair in pairs) for pairs in (SECTIONS, FLEET_SECTIONS))
    return INTRO + run + FLEET_INTRO + fleet


def section(title: str, model: type[BaseModel]) -> str:
    doc = " ".join((model.__doc__ or "").split()).replace("``", "`")
    rows = "".join(row(name, field) for name, field in model.model_fields.items())
    return f"\n## `{title}`\n\n{doc}\n\n| key | type | default | meaning |\n| --- | --- | --- | --- |\n{rows}"


def row(name: str, field: FieldInfo) -> str:
    meaning = " ".join((field.description or "").split()).replace("``", "`").replace("|", "\\|")
    return f"| `{name}` | {kind(field.annotation)} | {default(field)} | {meaning} |\n"


def kind(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return kind(arguments[0])
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin in (list, dict):
        return f"{'list' if origin is list else 'mapping'} of {kind(arguments[-1])}"
    if arguments:
        return " or ".join(dict.fromkeys(kind(part) for part in arguments if part is not type(None)))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    words = {JsonValue: "any value", str: "text", int: "integer", float: "number", bool: "boolean", Any: "any"}
    return words.get(annotation, str(annotation))


def default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default is None or field.default is PydanticUndefined:
        return ""
    if isinstance(field.default, BaseModel):
        return "see below"
    return f"`{field.default!r}`".replace("'", '"').replace("True", "true").replace("False", "false")


if __name__ == "__main__":
    main()
