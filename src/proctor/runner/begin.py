"""How a run opens: a new directory, the same one again, or a refusal with the reason."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import PurePosixPath

import yaml

from proctor.audit.places import FOLDER as AUDIT
from proctor.audit.standing import check_standing
from proctor.doctor.versions import changes, check_requires, versions
from proctor.results import RunDir
from proctor.results.chosen import NAME as CHOSEN_NAME
from proctor.results.chosen import chosen_text, facts_of
from proctor.results.rundir import OWN_NAMES
from proctor.rows import Event, UserError
from proctor.runner.exam import Exam
from proctor.runner.only import check_same_rows
from proctor.spec import build_spec, differences, dump_spec
from proctor.storage.connect import is_url


def begin(exam: Exam, *, fresh: bool) -> None:
    """Makes or reopens the run directory of `exam`, which the caller holds the lock of.

    Raises:
        UserError: as `check_directory`, should another driver have come first.
    """
    check_directory(exam, fresh=fresh)
    if fresh:
        set_aside(exam.run)
    _record_source(exam)
    _record_versions(exam)
    exam.run.create(exam.spec)  # last: from here on this is a run


def _record_source(exam: Exam) -> None:
    """Writes down what the rows are, and which of them the run keeps to."""
    facts: dict[str, object] = {"fingerprint": exam.source.fingerprint(), "rows": exam.source_rows}
    if exam.only is not None:
        exam.run.write("source", facts | {"only": facts_of(exam.only)})
        exam.run.folder.write(CHOSEN_NAME, chosen_text(exam.only))
    else:
        exam.run.write("source", facts)


def _record_versions(exam: Exam) -> None:
    """Writes down what computes the answers; a run that goes on with other versions is told so in its events."""
    try:
        before = exam.run.read("versions")
    except UserError:  # damaged; it is written anew
        before = None
    now = versions(exam.spec)
    exam.run.write("versions", now)
    if isinstance(before, dict) and (changed := changes(before, now)):
        text = f"the run began with others: {'; '.join(changed)}"
        exam.run.append_event(Event("versions.changed", message=text))


def check(exam: Exam, *, fresh: bool = False) -> None:
    """Whether a run of `exam` may begin; changes nothing.

    Raises:
        UserError: as `check_directory`; or the engine cannot work, or has no such knob as `audit` names.
    """
    check_directory(exam, fresh=fresh)
    check_requires(exam.spec)
    exam.check_engines()
    check_standing(exam.spec)


def check_directory(exam: Exam, *, fresh: bool) -> None:
    """Whether the run directory is free for this run, or holds it already.

    Raises:
        UserError: it holds a run with another spec or other data, or what is not a run's.
    """
    _apart(exam)
    _check_owner(exam.run, fresh=fresh)
    if not fresh and exam.run.spec() is not None:
        _same_run(exam)


def set_aside(run: RunDir) -> None:
    """Moves what an earlier run left into a folder of its own beside the run; nothing is deleted."""
    run.move_own_entries(f"earlier/{datetime.now(UTC).strftime('%Y%m%dT%H%M%S.%fZ')}")


def _apart(exam: Exam) -> None:
    """Results among the data would be taken for data, or go aside with an earlier run."""
    source, root = PurePosixPath(_real(exam.spec.source.path)), PurePosixPath(_real(exam.run.location))
    if source == root or any(source.is_relative_to(root / name) for name in OWN_NAMES):
        raise UserError("the run directory and source.path are one", where=exam.run.location, fix="set another run_dir")


def _real(place: str) -> str:
    return place if is_url(place) else os.path.realpath(place)


def _check_owner(run: RunDir, *, fresh: bool) -> None:
    """Nothing but a run of ours is resumed or put aside."""
    names = [name for name in run.own_entries() if name != AUDIT]  # `proctor audit` may have come before any run
    if "source.json" not in names:
        if names:
            what = f"{', '.join(names)} there, but not of a run"
            raise UserError(what, where=run.location, fix="set another run_dir, or move these away")
    elif "spec.yaml" not in names and "results" in names and not fresh:
        raise UserError("the results of a run whose spec.yaml is gone", where=run.location, fix="use --fresh")


def _same_run(exam: Exam) -> None:
    where, cure = exam.run.location, "use --fresh to start anew, or another run_dir"
    earlier = exam.run.spec()
    assert earlier is not None
    now = build_spec(yaml.safe_load(dump_spec(exam.spec)))
    changed = differences(earlier, now)
    if changed:
        shown = "; ".join(str(difference) for difference in changed)
        raise UserError(f"the run here has another spec: {shown}", where=where, fix=cure)
    source = exam.run.source()
    if source is not None and source.fingerprint != exam.source.fingerprint():
        raise UserError("the run here was made from other data under the same path", where=where, fix=cure)
    check_same_rows(exam.run, exam.only)
