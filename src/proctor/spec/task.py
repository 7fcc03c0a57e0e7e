"""What is asked and how it is marked."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, JsonValue, field_validator

from proctor.spec.camera import CameraSpec
from proctor.spec.model import SpecModel


class TaskBase(SpecModel):
    """What all built-in tasks share."""

    system: str | None = None
    """Text of the system message. Default: none."""
    prompt: str | None = None
    """Text of the question; ``{column}`` is replaced by the row's value. The row's images stand before it. A source
    with `columns.prompt` has a prompt for each row instead."""


class DrivingTaskSpec(TaskBase):
    """Road surface, curvature, obstacle and waypoints from camera frames."""

    kind: Literal["driving"]
    """Which task."""
    camera: CameraSpec | None = None
    """How the camera sees the road, for waypoints drawn on images. It changes no answer and no score."""


class ClassificationTaskSpec(TaskBase):
    """One label out of a closed list."""

    kind: Literal["classification"]
    """Which task."""
    labels: list[str] = Field(min_length=2)
    """The labels. An answer counts when it names exactly one of them."""
    ignore_case: bool = True
    """Whether upper and lower case are the same."""


class ExactTaskSpec(TaskBase):
    """The answer must equal the target."""

    kind: Literal["exact"]
    """Which task."""
    ignore_case: bool = False
    """Whether upper and lower case are the same."""
    strip: bool = True
    """Whether white space around the answer is cut off."""


class RegexTaskSpec(TaskBase):
    """A pattern picks the part of the answer that must equal the target."""

    kind: Literal["regex"]
    """Which task."""
    pattern: str
    """Regular expression; its first group (or the whole match) is what is compared. No match is a parse failure."""
    ignore_case: bool = False
    """Whether upper and lower case are the same, in the pattern and in the comparison."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        return value


class PythonTaskSpec(SpecModel):
    """A task of your own."""

    kind: Literal["python"]
    """Which task."""
    python: str = Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
    """``module:Class`` of a class with the methods of `proctor.tasks.Task`."""
    directory: str = "."
    """Directory in which the module is looked up first; a relative path starts at the directory of the spec file."""
    options: dict[str, JsonValue] = {}
    """Keyword arguments for the class."""


TaskSpec = Annotated[
    DrivingTaskSpec | ClassificationTaskSpec | ExactTaskSpec | RegexTaskSpec | PythonTaskSpec,
    Field(discriminator="kind"),
]
