"""What is put beside each other: a run, and a checkpoint of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
from pyroaring import BitMap64

from proctor.results import RunDir
from proctor.results.rundir import SourceFacts
from proctor.rows import UserError
from proctor.spec import RunSpec
from proctor.tasks import Summary


@dataclass(frozen=True, slots=True)
class Side:
    """One checkpoint of one run.

    Attributes:
        label: what it is called beside the others.
        source: what the run's source was; None when that is not known.
        only: the rows that the run was told to keep to, or that are compared; None for all of the source.
    """

    run: RunDir
    spec: RunSpec
    checkpoint: str
    label: str
    source: SourceFacts | None
    only: BitMap64 | None = None

    @property
    def where(self) -> str:
        """Run directory and checkpoint, as given on a command line."""
        return f"{self.run.location}:{self.checkpoint}"

    @property
    def expected(self) -> int | None:
        """Rows that it should have; None when nobody knows."""
        if self.source is None:
            return None
        return self.source.rows if self.only is None else len(self.only)

    def stored_summary(self) -> Summary | None:
        """What the run added up for this checkpoint when it closed; None when it has not.

        Raises:
            UserError: ``metrics.json`` is damaged.
        """
        try:
            return msgspec.convert(self.run.read("metrics") or {}, dict[str, Summary]).get(self.checkpoint)
        except msgspec.ValidationError as error:
            where = f"{self.run.location}/metrics.json"
            raise UserError(f"no metrics of Proctor: {error}", where=where, fix="resume the run") from error


@dataclass(frozen=True, slots=True)
class Given:
    """A run as it was given: one checkpoint of it by name, or all."""

    text: str
    named: bool
    sides: list[Side]


def open_run(text: str) -> Given:
    """The run at ``RUN`` or ``RUN:CHECKPOINT``.

    Raises:
        UserError: there is no such run or checkpoint, or its spec is not understood.
    """
    run, name = _found(text)
    return given_of(text, run, name)


def given_of(text: str, run: RunDir, name: str | None) -> Given:
    """A run that is open already, or the checkpoint of it by that `name`.

    Raises:
        UserError: there is no run or no such checkpoint, or its spec is not understood.
    """
    spec = run.spec()
    if spec is None:
        raise UserError("no run here (no spec.yaml)", where=text)
    names = [checkpoint.name for checkpoint in spec.engine.checkpoints]
    if name is not None and name not in names:
        raise UserError(f"no checkpoint {name!r} in this run", where=run.location, fix=f"one of {', '.join(names)}")
    source, only = run.source(), run.chosen()
    chosen = names if name is None else [name]
    return Given(text, name is not None, [Side(run, spec, each, _short(run, each), source, only) for each in chosen])


def line_up(runs: Sequence[Given]) -> tuple[list[list[Side]], list[str]]:
    """Which checkpoints are put beside each other, and those that have no counterpart.

    Runs of one checkpoint (or with one named) are compared as they are. Otherwise checkpoints of the same name are put
    beside each other, in the order of the first run.

    Raises:
        UserError: fewer than two or more than four sides, the same side twice, or nothing to put beside each other.
    """
    if not 2 <= len(runs) <= 4:
        raise UserError(f"two to four runs are compared, not {len(runs)}", where="proctor compare")
    if all(len(run.sides) == 1 for run in runs):
        return [distinct([run.sides[0] for run in runs])], []
    unnamed = [run for run in runs if len(run.sides) > 1]
    if len(unnamed) < len(runs):
        choice = ", ".join(side.checkpoint for side in unnamed[0].sides)
        raise UserError(
            "this run has several checkpoints, and another side has one: say which",
            where=unnamed[0].text,
            fix=f"{unnamed[0].text}:CHECKPOINT, one of {choice}",
        )
    tables = [{side.checkpoint: side for side in run.sides} for run in runs]
    names = dict.fromkeys(name for table in tables for name in table)
    missing = [
        f"{name} is not in {', '.join(r.text for r, t in zip(runs, tables, strict=True) if name not in t)}"
        for name in names
        if not all(name in table for table in tables)
    ]
    groups = [distinct([table[name] for table in tables]) for name in names if all(name in t for t in tables)]
    if not groups:
        raise UserError(
            "no checkpoint has the same name in all runs", where="proctor compare", fix="name them: RUN:CHECKPOINT"
        )
    return groups, missing


def same_rows(a: Side, b: Side) -> bool:
    """Whether both were asked the same rows of the same source."""
    return a.run.location == b.run.location or (same_data(a, b) and a.only == b.only)


def same_data(a: Side, b: Side) -> bool:
    """Whether the sources of both are known to be the same, whichever of its rows they were asked."""
    return a.source is not None and b.source is not None and a.source.same_data(b.source)


def narrowed(a: Side, b: Side) -> tuple[Side, Side, list[str]]:
    """Both sides kept to the rows that both were asked, and what is said of that.

    Raises:
        UserError: there is no such row.
    """
    if a.only == b.only:
        return a, b, []
    lists = [side.only for side in (a, b) if side.only is not None]
    common = BitMap64.intersection(*lists)
    if not common:
        raise UserError("no row was asked of both", where=f"{a.label} and {b.label}")
    kept = [f"{side.label} has {len(side.only):,} rows of its source" for side in (a, b) if side.only is not None]
    told = f"{', '.join(kept)} (--only): the {len(common):,} rows that were asked of both are compared"
    return replace(a, only=common), replace(b, only=common), [told]


def _found(text: str) -> tuple[RunDir, str | None]:
    """The run directory; what follows the last colon is a checkpoint only where all of it is no run."""
    try:
        return RunDir.existing(text), None
    except UserError:
        place, _, name = text.rpartition(":")
        if not place or not name or "/" in name:
            raise
        return RunDir.existing(place), name


def _short(run: RunDir, checkpoint: str) -> str:
    return f"{run.location.rstrip('/').rpartition('/')[2] or run.location}:{checkpoint}"


def distinct(sides: list[Side]) -> list[Side]:
    """The sides with labels that tell them apart.

    Raises:
        UserError: one is there twice.
    """
    places = [side.where for side in sides]
    if len(set(places)) < len(places):
        raise UserError("the same checkpoint of the same run is there twice", where=places[0])
    if len({side.label for side in sides}) == len(sides):
        return sides
    return [replace(side, label=side.where) for side in sides]
