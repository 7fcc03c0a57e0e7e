"""Task ``python``: a class of the user's own, imported by name."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from proctor.rows import Prompt, Sample, UserError, told
from proctor.rows.records import record_schema
from proctor.spec.task import PythonTaskSpec
from proctor.tasks.base import Scores, Summary, Task

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_METHODS = ("prompt", "target", "parse", "score", "summary")


class CustomTask:
    """Stands before an instance of the user's class.

    It is pickled as where to find the class and how to make the instance, not as the instance: a worker imports the
    module anew (from the same directory), and the instance itself may hold what cannot be pickled.
    """

    def __init__(self, spec: PythonTaskSpec) -> None:
        """Makes the task that `spec` names; a relative `spec.directory` starts at the working directory.

        Raises:
            UserError: no such module or class, a class without the methods of a task, options that do not fit.
        """
        self._spec = spec.model_copy(update={"directory": str(Path(spec.directory).absolute())})
        self._task = _instance(self._spec)
        self._columns = _columns(spec, self._task)

    def __reduce__(self) -> tuple[Callable[..., CustomTask], tuple[PythonTaskSpec]]:
        return (CustomTask, (self._spec,))

    @property
    def columns(self) -> Mapping[str, pa.DataType]:
        """The user's columns."""
        return self._columns

    def prompt(self, sample: Sample) -> Prompt:
        """The user's prompt."""
        return self._task.prompt(sample)

    def target(self, sample: Sample) -> Any:
        """The user's target."""
        return self._task.target(sample)

    def parse(self, text: str) -> Any:
        """What the user's task reads in an answer."""
        return self._task.parse(text)

    def score(self, parsed: Any, target: Any) -> Scores:
        """The user's marks."""
        return self._task.score(parsed, target)

    def summary(self, records: duckdb.DuckDBPyRelation, expected: int) -> Summary:
        """The user's summary, with plain numbers.

        Raises:
            Exception: whatever the user's code raises; `msgspec.ValidationError` for what is no summary.
        """
        found = self._task.summary(records, expected)
        return msgspec.convert(msgspec.to_builtins(found, enc_hook=_plain_number), Summary)


def _plain_number(value: Any) -> Any:
    if hasattr(value, "item"):  # a numpy number
        return value.item()
    raise TypeError(f"a summary cannot hold a {type(value).__name__}")


def _instance(spec: PythonTaskSpec) -> Task:
    module_name, _, class_name = spec.python.partition(":")
    task_class = _class(_module(module_name, spec.directory, spec.python), class_name, spec.python)
    missing = [name for name in _METHODS if not callable(getattr(task_class, name, None))]
    if missing:
        raise UserError(f"has no method {', '.join(missing)}", where=spec.python, fix="see proctor.tasks.Task")
    try:
        inspect.signature(task_class).bind(**spec.options)
    except TypeError as error:
        raise UserError(f"task.options do not fit the class: {error}", where=spec.python) from error
    try:
        task: Task = task_class(**spec.options)
    except (Exception, SystemExit) as error:
        raise UserError(f"could not be made: {told(error)}", where=spec.python) from error
    return task


def _module(name: str, directory: str, where: str) -> ModuleType:
    if directory not in sys.path:
        sys.path.insert(0, directory)  # stays: the user's code may import its neighbours later
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            fix = f"it must be installed, or lie in {directory}"
            raise UserError(f"there is no module {error.name!r}", where=where, fix=fix) from error
        raise UserError(f"importing {name!r} failed: {error}", where=where) from error
    except (Exception, SystemExit) as error:
        raise UserError(f"importing {name!r} failed: {told(error)}", where=where) from error


def _class(module: ModuleType, name: str, where: str) -> type[Any]:
    found = getattr(module, name, None)
    if isinstance(found, type):
        return found
    classes = [
        key
        for key, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__ and not key.startswith("_")
    ]
    what = f"{name!r} is not a class" if found is not None else f"module {module.__name__!r} has no class {name!r}"
    raise UserError(what, where=where, fix=f"its classes: {', '.join(sorted(classes)) or 'none'}")


def _columns(spec: PythonTaskSpec, task: Task) -> dict[str, pa.DataType]:
    try:
        columns = dict(task.columns)
        schema = record_schema(columns)
    except (Exception, SystemExit) as error:
        what = f"its columns cannot be used: {told(error)}"
        raise UserError(what, where=spec.python, fix="a property that maps names to pyarrow types") from error
    return {name: schema.field(name).type for name in columns}
