"""The checkpoints of a fleet: those of a list, those that a pattern finds, those that have come to a directory."""

from __future__ import annotations

import glob
import re
import time
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from pydantic import ValidationError

from proctor.fleet.folder import base_of, storage_options
from proctor.fleet.naming import by_number
from proctor.rows import UserError
from proctor.spec import Checkpoint
from proctor.spec.fleet import FleetSpec, GlobSpec, WatchSpec
from proctor.storage.folder import Folder, LocalFolder, open_folder
from proctor.transfer.safetensors import parse_index, read_header

_WILD = re.compile(r"[*?\[]")
_ESCAPED = re.compile(r"\[(.)\]")
_INDEX = re.compile(r".*\.(safetensors|bin)\.index\.json")
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_NOT_WEIGHTS = frozenset({"training_args.bin", "optimizer.pt", "scheduler.pt"})
_SHARD = re.compile(r".*-\d+-of-\d+\.(safetensors|bin)")
CHANGED = "changed since the last look"
SEEN_ONCE = "whole, and counts when the next look finds it unchanged"

Look = tuple[tuple[str, int, int], ...]
"""What a checkpoint directory was like: name, bytes and time of change (ns; 0 in object storage) of each file."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one look at the checkpoints of a fleet found.

    Attributes:
        checkpoints: those that count, in their order: as listed, or by the numbers in their names.
        waiting: why others do not count yet, by path.
        looks: what each directory was like, by path; for the next look at a watched directory.
    """

    checkpoints: tuple[Checkpoint, ...]
    waiting: dict[str, str] = field(default_factory=dict)
    looks: dict[str, Look] = field(default_factory=dict)


def find(fleet: FleetSpec, before: Mapping[str, Look] | None = None, known: Container[str] = ()) -> Found:
    """Looks for the checkpoints of a resolved fleet spec.

    A listed checkpoint counts as it is: its run says what is wrong with it. One that is found counts when it is whole:
    ``config.json`` and all weights that its index names are there and, on a local disk, as long as their headers say.
    In a watched directory it must be as it was at the look before, too.

    Args:
        fleet: resolved.
        before: `Found.looks` of the look before.
        known: paths of checkpoints that count already, and are not looked at again.

    Raises:
        UserError: the pattern is none, or the directory cannot be read.
    """
    wanted = fleet.matrix.checkpoints
    if wanted is None:
        return Found(tuple(_of_run(fleet)))
    if isinstance(wanted, list):
        return Found(tuple(wanted))
    pattern = _pattern(wanted)
    places = sorted((place for place in _places(fleet, pattern) if place not in known), key=by_number)
    checkpoints, waiting, looks = [], dict[str, str](), dict[str, Look]()
    for place in places:
        seen = None if before is None else before.get(place)
        reason = _why_not(fleet, place, looks, seen, twice=isinstance(wanted, WatchSpec))
        try:
            checkpoint = Checkpoint(name=_name(place, pattern), path=place)
        except ValidationError:
            reason = f"its name {_name(place, pattern)!r} has other characters than letters, digits and . _ = + @ -"
        if reason is None:
            checkpoints.append(checkpoint)
        else:
            waiting[place] = reason
    return Found(tuple(checkpoints), waiting, looks)


def _why_not(fleet: FleetSpec, place: str, looks: dict[str, Look], before: Look | None, *, twice: bool) -> str | None:
    """Why the directory at `place` does not count; None if it does. What it is like now goes into `looks`."""
    folder = open_folder(place, storage_options(fleet))
    try:
        look = looks[place] = _look(folder)
        reason = _lacking(folder, look)
    except OSError as error:  # it is being moved away, or storage failed: the next look will tell
        return f"cannot be read: {error}"
    if reason is not None or not twice:
        return reason
    return SEEN_ONCE if before is None else CHANGED if before != look else None


def find_settled(fleet: FleetSpec, pause: float = 2.0) -> Found:
    """`find` for who has not looked before: a watched directory is looked at twice, `pause` seconds apart."""
    found = find(fleet)
    if not any(reason == SEEN_ONCE for reason in found.waiting.values()):
        return found
    time.sleep(pause)
    return find(fleet, found.looks)


def _of_run(fleet: FleetSpec) -> list[Checkpoint]:
    engine = base_of(fleet).get("engine")
    listed = engine.get("checkpoints") if isinstance(engine, dict) else None
    return [Checkpoint.model_validate(one) for one in listed] if isinstance(listed, list) else []


def _pattern(wanted: GlobSpec | WatchSpec) -> str:
    if isinstance(wanted, WatchSpec):
        return f"{glob.escape(wanted.watch.rstrip('/'))}/{wanted.match}"
    if "**" in wanted.glob:
        raise UserError("** is not known here", where="matrix.checkpoints.glob", fix="a * for each level")
    if not any(map(_is_open, wanted.glob.split("/"))):
        raise UserError("no *, ? or [ in it", where="matrix.checkpoints.glob", fix="list the checkpoint instead")
    return wanted.glob.rstrip("/")


def _split(pattern: str) -> tuple[str, list[str]]:
    """The place before the first part with a wildcard, and the parts from there on."""
    parts = pattern.split("/")
    first = next((place for place, part in enumerate(parts) if _is_open(part)), len(parts) - 1)
    return _ESCAPED.sub(r"\1", "/".join(parts[:first])) or "/", parts[first:]


def _is_open(part: str) -> bool:
    """Whether a part of a pattern leaves something open; ``[x]`` does not, it is how a character stands for itself."""
    return _WILD.search(_ESCAPED.sub("", part)) is not None


def _places(fleet: FleetSpec, pattern: str) -> Iterator[str]:
    """Paths or URLs of the directories that fit."""
    root, parts = _split(pattern)
    folder = open_folder(root, storage_options(fleet))
    if isinstance(folder, LocalFolder) and not folder.root.is_dir():
        raise UserError("no such directory", where=f"matrix.checkpoints: {root}")
    try:
        for inner in _below(folder, "", parts):
            yield f"{root.rstrip('/')}/{inner}"
    except OSError as error:
        raise UserError(f"cannot be listed: {error}", where=f"matrix.checkpoints: {root}") from error


def _below(folder: Folder, place: str, parts: list[str]) -> Iterator[str]:
    for name in folder.names(place):
        if not name.endswith("/") or not fnmatchcase(name[:-1], parts[0]):
            continue
        inner = f"{place}/{name[:-1]}" if place else name[:-1]
        if len(parts) == 1:
            yield inner
        else:
            yield from _below(folder, inner, parts[1:])


def _name(place: str, pattern: str) -> str:
    """The parts of a path that the pattern leaves open: ``run-7.final`` for ``models/*/final``."""
    _, parts = _split(pattern)
    return ".".join(PurePosixPath(place).parts[-len(parts) :])


def _look(folder: Folder) -> Look:
    return tuple((name, *_state(folder, name)) for name in folder.names() if not name.endswith("/"))


def _state(folder: Folder, name: str) -> tuple[int, int]:
    if isinstance(folder, LocalFolder):
        stat = (folder.root / name).stat()
        return stat.st_size, stat.st_mtime_ns
    return folder.size(name), 0


def _lacking(folder: Folder, look: Look) -> str | None:
    """Why a directory is no whole checkpoint; None if it is one."""
    sizes = {name: size for name, size, _ in look}
    if not sizes.get("config.json"):
        return "no config.json yet"
    weights = [name for name in sizes if name.endswith(_WEIGHTS) and name not in _NOT_WEIGHTS]
    indices = [name for name in sizes if _INDEX.fullmatch(name)]
    for index in indices:
        try:
            wanted = sorted(set(parse_index(folder.read(index), index).values()))
        except UserError as error:
            return f"{index} is no index (yet): {error.what}"
        missing = [name for name in wanted if not sizes.get(name)]
        if missing:
            return f"{len(missing)} of {len(wanted)} weight files are missing: {missing[0]} ..."
    if not indices and any(_SHARD.fullmatch(name) for name in weights):
        return "parts of the weights are there, and no index of them yet"
    if not weights:
        return "no weights yet"
    return _cut_short(folder, weights)


def _cut_short(folder: Folder, weights: list[str]) -> str | None:
    """Which file is shorter than its header says. Objects appear whole, so that only local files are looked at."""
    if not isinstance(folder, LocalFolder):
        return None
    for name in (name for name in weights if name.endswith(".safetensors")):
        try:
            read_header(folder.root / name)
        except UserError as error:
            return f"{name}: {error.what}"
    return None
