"""From YAML text, or plain data, to a checked `RunSpec`: every mistake is named with its line and its cure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from proctor.rows import UserError
from proctor.spec.engine import LocalEngineBase
from proctor.spec.explain import explain
from proctor.spec.run import RunSpec
from proctor.spec.source import MdsSourceSpec
from proctor.spec.task import PythonTaskSpec
from proctor.spec.trackers import FilesTrackerBase
from proctor.spec.yamltext import Lines, parse_value, parse_yaml


def load_spec(path: str | Path, overrides: Sequence[str] = ()) -> RunSpec:
    """Reads the YAML file at `path`, applies ``key.path=value`` overrides, and checks the whole.

    Relative paths in the spec start at the file's directory.

    Raises:
        UserError: the file cannot be read, is not YAML, or does not describe a run.
    """
    path = Path(path)
    data, lines = read_keys(path)
    for override in overrides:
        apply_override(data, override)
        lines.override(override)
    return build_spec(data, base=path.parent, lines=lines)


def read_keys(path: Path) -> tuple[dict[str, Any], Lines]:
    """The keys in a YAML file, unchecked, and their lines.

    Raises:
        UserError: the file cannot be read, or is not a YAML mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UserError(f"cannot read the spec: {reason}", where=str(path)) from error
    return parse_yaml(text, str(path))


def build_spec(data: dict[str, Any], *, base: Path | None = None, lines: Lines | None = None) -> RunSpec:
    """Checks plain data and makes a `RunSpec` of it; relative paths start at `base` (default: as they are).

    Raises:
        UserError: with one line for the first mistake, and how many more there are.
    """
    try:
        spec = RunSpec.model_validate(data)
    except ValidationError as error:
        raise explain(error, RunSpec, data, lines) from error
    return spec if base is None else anchored(spec, base.resolve())


def apply_override(data: dict[str, Any], override: str) -> None:
    """Sets one dotted key in place: ``engine.batch_size=16``, ``engine.checkpoints.0.path=other``. Values are YAML.

    Raises:
        UserError: the override has no ``=``, its value is not YAML, or it leads through something that is not a
            mapping or list.
    """
    key, separator, text = override.partition("=")
    where = f"--set {override}"
    if not separator or not key:
        raise UserError("not of the form key=value", where=where, fix="for example --set engine.batch_size=16")
    try:
        value, _ = parse_value(text, where)
    except UserError as error:
        raise UserError(error.what, where=where) from error
    set_value(data, key, value, where)


def set_value(data: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Sets the dotted `key` in place; blocks that are not there yet are made. `where` stands for it in messages.

    Raises:
        UserError: the key leads through something that is not a mapping or list.
    """
    *parents, last = key.split(".")
    holder: Any = data
    for name in parents:
        holder = _step(holder, name, where)
    if isinstance(holder, list):
        holder[_index(holder, last, where)] = value
    elif isinstance(holder, dict):
        holder[last] = value
    else:
        raise UserError(f"{'.'.join(parents)} holds a single value, not keys", where=where)


def _step(holder: Any, name: str, where: str) -> Any:
    if isinstance(holder, list):
        return holder[_index(holder, name, where)]
    if isinstance(holder, dict):
        return holder.setdefault(name, {})
    raise UserError(f"there are no keys below {name!r}", where=where)


def _index(holder: list[Any], name: str, where: str) -> int:
    if name.isdigit() and int(name) < len(holder):
        return int(name)
    raise UserError(f"{name!r} is not a position in a list of {len(holder)}", where=where)


def anchored(spec: RunSpec, base: Path) -> RunSpec:
    """`spec` with absolute paths: relative ones start at `base`, URLs and names on servers stay as they are."""

    def anchor(path: str) -> str:
        return at_base(path, base)

    engine = spec.engine
    if engine.fingerprints is not None:
        engine = engine.model_copy(update={"fingerprints": anchor(engine.fingerprints)})
    if isinstance(engine, LocalEngineBase):
        checkpoints = [c.model_copy(update={"path": anchor(c.path)}) for c in engine.checkpoints]
        # A bare name is looked up on PATH, as a shell would.
        python = anchor(engine.python) if engine.python and "/" in engine.python else engine.python
        engine = engine.model_copy(update={"checkpoints": checkpoints, "python": python})
    places = {"path": anchor(spec.source.path)}
    if isinstance(spec.source, MdsSourceSpec) and spec.source.cache_dir is not None:
        places["cache_dir"] = anchor(spec.source.cache_dir)
    source = spec.source.model_copy(update=places)
    task = spec.task
    if isinstance(task, PythonTaskSpec):
        task = task.model_copy(update={"directory": anchor(task.directory)})
    trackers = [
        tracker.model_copy(update={"dir": anchor(tracker.dir)})
        if isinstance(tracker, FilesTrackerBase) and tracker.dir is not None
        else tracker
        for tracker in spec.trackers
    ]
    parts = {
        "run_dir": anchor(spec.run_dir),
        "source": source,
        "engine": engine,
        "task": task,
        "trackers": trackers,
    }
    return spec.model_copy(update=parts)


def at_base(path: str, base: Path) -> str:
    """`path` with a start: a relative one starts at `base`, a URL stays as it is.

    Raises:
        UserError: it begins with the home directory of nobody.
    """
    return path if "://" in path else str((base / _at_home(path)).absolute())


def _at_home(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise UserError("no such user", where=path, fix="write ./ before a name that begins with ~") from error
