"""From a task's spec to the task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor.spec.source import ColumnsSpec
from proctor.spec.task import (
    ClassificationTaskSpec,
    DrivingTaskSpec,
    ExactTaskSpec,
    PythonTaskSpec,
    RegexTaskSpec,
    TaskSpec,
)

if TYPE_CHECKING:
    from proctor.tasks.base import Task


def make_task(spec: TaskSpec, columns: ColumnsSpec) -> Task:
    """The task that `spec` describes. Picklable; cheap to make.

    Raises:
        UserError: no prompt, a malformed prompt, or a ``python`` class that cannot be used.
    """
    match spec:
        case DrivingTaskSpec():
            from proctor.tasks.driving import DrivingTask

            return DrivingTask.of(spec, columns)
        case ClassificationTaskSpec():
            from proctor.tasks.classification import ClassificationTask

            return ClassificationTask.of(spec, columns)
        case ExactTaskSpec():
            from proctor.tasks.exact import ExactTask

            return ExactTask.of(spec, columns)
        case RegexTaskSpec():
            from proctor.tasks.regex import RegexTask

            return RegexTask.of(spec, columns)
        case PythonTaskSpec():
            from proctor.tasks.custom import CustomTask

            return CustomTask(spec)
