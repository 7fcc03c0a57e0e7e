"""From a YAML file to a resolved `FleetSpec`: the run spec inside it, every path absolute, every choice tried once."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from proctor.fleet.cells import choices, run_data
from proctor.rows import UserError
from proctor.spec import Checkpoint, PythonTaskSpec, RunSpec, build_spec, masked
from proctor.spec.compare import walk
from proctor.spec.engine import LocalEngineBase
from proctor.spec.explain import explain
from proctor.spec.fleet import FleetSpec, GlobSpec, MatrixSpec, WatchSpec
from proctor.spec.load import apply_override, at_base, read_keys, set_value
from proctor.spec.model import SpecModel
from proctor.spec.yamltext import Lines

_RUN = "run."
_GIVEN = ("task", "engine.checkpoints", "engine.mode", "stream.checkpoints_at_once")
"""What a run spec may give, and the fleet gives in its place."""
_SOME = Checkpoint(name="checkpoint", path="/checkpoint")


def load_fleet(path: str | Path, overrides: Sequence[str] = ()) -> FleetSpec:
    """Reads the YAML file at `path` and the run spec that it names, applies ``key.path=value`` overrides (those that
    begin with ``run.`` to the run spec), and checks the whole.

    Relative paths start at the directory of the file they stand in; what the matrix chooses for a key of the run spec
    starts where the run spec does.

    Returns:
        the spec with the keys of the run spec in `run`, and with absolute paths.

    Raises:
        UserError: a file cannot be read, is not YAML, or does not describe a fleet; a choice is refused by the run
            spec; or a secret stands in it, which would be written into the fleet directory.
    """
    path = Path(path)
    data, lines = read_keys(path)
    ours = [text for text in overrides if not (text.startswith(_RUN) and isinstance(data.get("run"), str))]
    for override in ours:
        apply_override(data, override)
        lines.override(override)
    try:
        spec = FleetSpec.model_validate(data)
    except ValidationError as error:
        raise explain(error, FleetSpec, data, lines) from error
    run = _Run.of(spec, path, lines, [text for text in overrides if text not in ours])
    _refuse_ports(run)
    here = path.parent.resolve()
    resolved = spec.model_copy(
        update={
            "fleet_dir": at_base(spec.fleet_dir, here),
            "run": run.anchored(),
            "matrix": _matrix(spec.matrix, run, here, lines),
        }
    )
    _refuse_secrets(resolved, str(path))
    return resolved


class _Run:
    """The run spec of a fleet: its keys, where they stand, and where relative paths start."""

    def __init__(self, fleet: FleetSpec, keys: dict[str, Any], base: Path, lines: Lines) -> None:
        self.fleet, self.keys, self.base, self.lines = fleet, keys, base.resolve(), lines

    @classmethod
    def of(cls, fleet: FleetSpec, path: Path, lines: Lines, overrides: Sequence[str]) -> _Run:
        if not isinstance(fleet.run, str):
            return cls(fleet, dict(fleet.run), path.parent, lines.below(("run",)))
        file = Path(at_base(fleet.run, path.parent))
        keys, found = read_keys(file)
        for override in overrides:
            apply_override(keys, override.removeprefix(_RUN))
            found.override(override.removeprefix(_RUN))
        return cls(fleet, keys, file.parent, found)

    def anchored(self) -> dict[str, Any]:
        """The keys that are given, checked, with absolute paths; what the matrix gives is put in only for the check."""
        try:
            spec = self._filled({})
        except UserError:  # it lacks what the matrix chooses
            spec = self._filled(self._first()[1])
        dumped = spec.model_dump(mode="json", exclude_unset=True)
        return {
            name: _only(value, self.keys[name])
            for name, value in dumped.items()
            if name in self.keys and name != "run_dir"
        }

    def _filled(self, choice: dict[str, Any]) -> RunSpec:
        """The run spec as it is given; a task, checkpoints, and `choice` only where it has none."""
        given = {**self.keys, "run_dir": "/run"}
        filled = run_data(self.fleet, given, self._first()[0], choice, [_SOME])
        for key in (*_GIVEN, *choice):
            value = _at(given, key)
            if value is not None:
                set_value(filled, key, value, key)
        if _at(given, "engine.mode") is None and isinstance(filled["engine"], dict):
            filled["engine"].pop("mode", None)
        return build_spec(filled, base=self.base, lines=self.lines)

    def sample(self, *, task: str | None = None, **choice: Any) -> RunSpec:
        """A run spec of the fleet, with a task or choices other than the first ones."""
        first_task, first_choice = self._first()
        chosen = {**first_choice, **choice}
        data = run_data(self.fleet, self.keys, first_task if task is None else task, chosen, [_SOME])
        return build_spec({**data, "run_dir": "/run"}, base=self.base)

    def _first(self) -> tuple[str, dict[str, Any]]:
        return next(iter(self.fleet.matrix.tasks), ""), next(choices(self.fleet))


def _at(data: Any, key: str) -> Any:
    """The value at a dotted key; None if there is none."""
    for step in key.split("."):
        if isinstance(data, dict):
            data = data.get(step)
        elif isinstance(data, list) and step.isdecimal() and int(step) < len(data):
            data = data[int(step)]
        else:
            return None
    return data


def _only(value: Any, given: Any) -> Any:
    """`value` without the keys that `given` does not have."""
    if isinstance(value, dict) and isinstance(given, dict):
        return {name: _only(inner, given[name]) for name, inner in value.items() if name in given}
    return value


def _matrix(matrix: MatrixSpec, run: _Run, here: Path, lines: Lines) -> MatrixSpec:
    chosen = {
        key: [_tried(run, key, place, value, lines) for place, value in enumerate(values)]
        for key, values in matrix.set.items()
    }
    tasks = {name: _task(run, name, here, lines) for name in matrix.tasks}
    local = isinstance(run.sample().engine, LocalEngineBase)
    return matrix.model_copy(
        update={"set": chosen, "tasks": tasks, "checkpoints": _places(matrix.checkpoints, here, local=local)}
    )


def _tried(run: _Run, key: str, place: int, value: Any, lines: Lines) -> Any:
    """A choice as the run spec takes it, with an absolute path if it is one.

    Raises:
        UserError: the run spec does not take it.
    """
    try:
        spec = run.sample(**{key: value})
    except UserError as error:
        what = error.what if error.where in (None, key) else f"{error.where}: {error.what}"
        where = f"{lines.where(('matrix', 'set', key, place))}: matrix.set.{key}"
        raise UserError(what, where=where, fix=error.fix) from error
    taken = _at(spec.model_dump(mode="json"), key)
    return value if isinstance(value, dict | list) else taken


def _task(run: _Run, name: str, here: Path, lines: Lines) -> Any:
    try:
        run.sample(task=name)
    except UserError as error:
        where = f"{lines.where(('matrix', 'tasks', name))}: matrix.tasks.{name}"
        raise UserError(error.what, where=where, fix=error.fix) from error
    task = run.fleet.matrix.tasks[name]
    if isinstance(task, PythonTaskSpec):
        return task.model_copy(update={"directory": at_base(task.directory, here)})
    return task


def _places(
    checkpoints: list[Checkpoint] | GlobSpec | WatchSpec | None, here: Path, *, local: bool
) -> list[Checkpoint] | SpecModel | None:
    """The checkpoints with absolute paths, unless they are names on a server."""
    if isinstance(checkpoints, GlobSpec):
        return GlobSpec(glob=_pattern(checkpoints.glob, here))
    if isinstance(checkpoints, WatchSpec):
        return checkpoints.model_copy(update={"watch": at_base(checkpoints.watch, here)})
    if checkpoints is None or not local:
        return checkpoints
    return [one.model_copy(update={"path": at_base(one.path, here)}) for one in checkpoints]


def _pattern(pattern: str, here: Path) -> str:
    """An absolute pattern; nothing in the directory that it starts at is a wildcard."""
    if "://" in pattern or pattern.startswith(("/", "~")):
        return at_base(pattern, here)
    return f"{glob.escape(str(here))}/{pattern}"


def _refuse_ports(run: _Run) -> None:
    """Jobs of a fleet may work on one machine, where only one of them could have the port."""
    if _at(run.keys, "metrics.port") is not None:
        raise UserError(
            "a port for each run of a fleet, and runs share machines",
            where=f"{run.lines.where(('metrics', 'port'))}: run.metrics.port",
            fix="leave it out; the fleet has `metrics: {port: ...}` of its own",
        )


def _refuse_secrets(fleet: FleetSpec, where: str) -> None:
    plain = fleet.model_dump(mode="json")
    for found in walk("", plain, masked(plain)):
        raise UserError(
            f"{found.key} holds a secret, and a fleet directory is read by every job",
            where=where,
            fix="leave it out, and set it in the environment in which the cluster was started",
        )
