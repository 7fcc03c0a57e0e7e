"""The configuration of a run: typed, strict, importable without anything heavy."""

from __future__ import annotations

from proctor.spec.audit import AuditSpec
from proctor.spec.capacity import CapacitySpec
from proctor.spec.checks import warnings_of
from proctor.spec.compare import Difference, differences
from proctor.spec.compile import CompileSpec, VllmCompileSpec
from proctor.spec.engine import (
    Checkpoint,
    EngineSpec,
    FaultSpec,
    OpenAIEngineSpec,
    ScriptedEngineSpec,
    TransformersEngineSpec,
    VllmEngineSpec,
)
from proctor.spec.images import ImagesSpec
from proctor.spec.load import anchored, build_spec, load_spec
from proctor.spec.metrics import MetricsSpec
from proctor.spec.numerics import EffectSpec, NumericsSpec, PlantedKnobSpec
from proctor.spec.run import LimitsSpec, RaySpec, RunSpec, SamplingSpec, StorageSpec, StreamSpec
from proctor.spec.source import (
    ColumnsSpec,
    HuggingFaceSourceSpec,
    ImageFolderSourceSpec,
    JsonlSourceSpec,
    LanceSourceSpec,
    MdsSourceSpec,
    ParquetSourceSpec,
    SourceSpec,
    WebDatasetSourceSpec,
)
from proctor.spec.store import dump_spec, masked
from proctor.spec.task import (
    ClassificationTaskSpec,
    DrivingTaskSpec,
    ExactTaskSpec,
    PythonTaskSpec,
    RegexTaskSpec,
    TaskSpec,
)
from proctor.spec.trackers import (
    CometTrackerSpec,
    JsonlTrackerSpec,
    MlflowTrackerSpec,
    TensorBoardTrackerSpec,
    TrackerSpec,
    WandbTrackerSpec,
    tracker_name,
)

__all__ = [
    "AuditSpec",
    "CapacitySpec",
    "Checkpoint",
    "ClassificationTaskSpec",
    "ColumnsSpec",
    "CometTrackerSpec",
    "CompileSpec",
    "Difference",
    "DrivingTaskSpec",
    "EffectSpec",
    "EngineSpec",
    "ExactTaskSpec",
    "FaultSpec",
    "HuggingFaceSourceSpec",
    "ImageFolderSourceSpec",
    "ImagesSpec",
    "JsonlSourceSpec",
    "JsonlTrackerSpec",
    "LanceSourceSpec",
    "LimitsSpec",
    "MdsSourceSpec",
    "MetricsSpec",
    "MlflowTrackerSpec",
    "NumericsSpec",
    "OpenAIEngineSpec",
    "ParquetSourceSpec",
    "PlantedKnobSpec",
    "PythonTaskSpec",
    "RaySpec",
    "RegexTaskSpec",
    "RunSpec",
    "SamplingSpec",
    "ScriptedEngineSpec",
    "SourceSpec",
    "StorageSpec",
    "StreamSpec",
    "TaskSpec",
    "TensorBoardTrackerSpec",
    "TrackerSpec",
    "TransformersEngineSpec",
    "VllmCompileSpec",
    "VllmEngineSpec",
    "WandbTrackerSpec",
    "WebDatasetSourceSpec",
    "anchored",
    "build_spec",
    "differences",
    "dump_spec",
    "load_spec",
    "masked",
    "tracker_name",
    "warnings_of",
]
