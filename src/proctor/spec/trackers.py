"""Experiment trackers that are told how a run goes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from proctor.spec.model import LONGEST, PathText, SpecModel, without_secrets


class TrackerBase(SpecModel):
    """What all trackers share. Keys and passwords are not set here: they come from the environment."""

    name: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$")
    """Name within the run, also of its file ``trackers/NAME.jsonl``. Default: its kind."""
    run_name: str | None = Field(default=None, min_length=1, max_length=200)
    """What the run is called there. Default: the name of the run directory."""
    every_seconds: float = Field(default=10.0, gt=0, le=LONGEST)
    """Seconds between two reports of progress."""
    patience_seconds: float = Field(default=60.0, gt=0, le=LONGEST)
    """Longest time for one request of the tracker's library, with all that it tries by itself; then its process is
    ended and tried again later."""
    close_seconds: float = Field(default=60.0, ge=0, le=3600)
    """Longest time that the end of the run waits for it. What did not arrive by then is sent by
    ``proctor tracker sync``."""


class FilesTrackerBase(TrackerBase):
    """What trackers share whose library writes files."""

    dir: PathText | None = None
    """A local directory for its files. Default: ``trackers/NAME/`` in the run directory, if that is local."""


class JsonlTrackerSpec(TrackerBase):
    """Only the file ``trackers/NAME.jsonl`` in the run directory, which every other tracker has, too."""

    kind: Literal["jsonl"]
    """Kind of tracker."""


class TensorBoardTrackerSpec(FilesTrackerBase):
    """TensorBoard's event files. Needs the extra ``proctor[tensorboard]``."""

    kind: Literal["tensorboard"]
    """Kind of tracker."""


class MlflowTrackerSpec(TrackerBase):
    """An MLflow server. Needs the extra ``proctor[mlflow]``."""

    kind: Literal["mlflow"]
    """Kind of tracker."""
    uri: str | None = Field(default=None, min_length=1)
    """Address of the server. Default: that in ``MLFLOW_TRACKING_URI``."""
    experiment: str = Field(default="proctor", min_length=1, max_length=200)
    """Name of the experiment; it is made where it is not there."""

    @field_validator("uri")
    @classmethod
    def _has_no_secrets(cls, value: str | None) -> str | None:
        return None if value is None else without_secrets(value)


class WandbTrackerSpec(FilesTrackerBase):
    """Weights & Biases. Needs the extra ``proctor[wandb]``, and ``WANDB_API_KEY`` unless it is offline."""

    kind: Literal["wandb"]
    """Kind of tracker."""
    project: str = Field(default="proctor", min_length=1, max_length=128)
    """Name of the project."""
    entity: str | None = Field(default=None, min_length=1)
    """User or team. Default: the key's own."""
    mode: Literal["online", "offline"] = "online"
    """`offline` writes files that ``wandb sync`` sends."""


class CometTrackerSpec(FilesTrackerBase):
    """Comet. Needs the extra ``proctor[comet]``, and ``COMET_API_KEY`` unless it is offline."""

    kind: Literal["comet"]
    """Kind of tracker."""
    project: str = Field(default="proctor", min_length=1, max_length=100)
    """Name of the project."""
    workspace: str | None = Field(default=None, min_length=1)
    """Workspace. Default: the key's own."""
    mode: Literal["online", "offline"] = "online"
    """`offline` writes archives that ``comet upload`` sends."""


TrackerSpec = Annotated[
    JsonlTrackerSpec | TensorBoardTrackerSpec | MlflowTrackerSpec | WandbTrackerSpec | CometTrackerSpec,
    Field(discriminator="kind"),
]


def tracker_name(tracker: TrackerSpec) -> str:
    """Its name within the run."""
    return tracker.name or tracker.kind
