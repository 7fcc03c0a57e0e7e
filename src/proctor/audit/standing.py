"""Audits that belong to a run: kept in its directory under ``audit/``, with the verdict in short beside them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import xxhash

import proctor
from proctor.audit.bench import Start
from proctor.audit.conduct import Audit, Auditor
from proctor.audit.design import make_design
from proctor.audit.lab import Lab, Progress
from proctor.audit.places import FOLDER, check_writable
from proctor.audit.store import ANSWERS, AUDIT, REPLAYED, TOKENS, write_audit
from proctor.audit.traffic import traffic_knobs
from proctor.audit.watch import watched
from proctor.engines.config import engine_config, environment
from proctor.engines.knobs import knobs_of
from proctor.engines.surroundings import look
from proctor.rows import Event, UserError
from proctor.sources.registry import source_of
from proctor.spec import Checkpoint, RunSpec
from proctor.storage.folder import Folder, LocalFolder

VERDICT = "verdict.json"
_OF_THE_ENGINE = {"replicas", "checkpoints", "faults"}
"""Keys of the engine that do not change what one engine answers, or are told apart by themselves."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of an audit in short: ``verdict.json``.

    Attributes:
        key: changes with everything that decides what is audited and how (see `key_of`).
        checkpoint: which model.
        kind, sentence: those of the `Verdict`; ``failed`` where there is no audit.
        exit_code: that of the `Audit`; 1 where it failed.
        seconds: that the audit took.
        failure: why there is none; empty if there is.
    """

    key: str
    checkpoint: str
    kind: str
    sentence: str
    exit_code: int
    seconds: float = 0.0
    failure: str = ""

    @classmethod
    def failed(cls, key: str, checkpoint: str, why: str) -> Standing:
        """An audit that came to nothing."""
        sentence = f"The audit failed: {why}"
        return cls(key=key, checkpoint=checkpoint, kind="failed", sentence=sentence, exit_code=1, failure=why)


def audited_checkpoint(spec: RunSpec, name: str | None = None) -> Checkpoint:
    """The checkpoint of that name; the first one for None.

    Raises:
        UserError: there is none of that name.
    """
    for checkpoint in spec.engine.checkpoints:
        if name in (None, checkpoint.name):
            return checkpoint
    names = ", ".join(checkpoint.name for checkpoint in spec.engine.checkpoints)
    raise UserError(f"no checkpoint {name!r} in this spec", where="engine.checkpoints", fix=f"there are: {names}")


def unaudited(spec: RunSpec, audited: str) -> list[str]:
    """Names of the run's checkpoints that an audit of `audited` says nothing about."""
    return [checkpoint.name for checkpoint in spec.engine.checkpoints if checkpoint.name != audited]


def key_of(spec: RunSpec, source: str, checkpoint: str) -> str:
    """Of what an audit would look at and how: settings, engine, versions, questions.

    It does not see whether the weights under a path were replaced, nor other hardware.

    Args:
        spec: with absolute paths.
        source: fingerprint of the source.
        checkpoint: name of the audited one.

    Raises:
        UserError: the engine's interpreter cannot be run.
    """
    python, _ = environment(spec.engine)
    faults = spec.audit is not None and spec.audit.faults
    asked = {
        "audit": None if spec.audit is None else spec.audit.model_dump(mode="json"),
        "faults": [fault.model_dump(mode="json") for fault in spec.engine.faults] if faults else [],
        "engine": spec.engine.model_dump(mode="json", exclude=_OF_THE_ENGINE),
        "checkpoint": (checkpoint, audited_checkpoint(spec, checkpoint).path),
        "questions": spec.model_dump(mode="json", include={"task", "sampling", "images"}),
        "columns": spec.source.columns.model_dump(mode="json"),
        "source": source,
        "versions": {"proctor": proctor.__version__, **look(spec.engine.kind, python).versions},
    }
    return xxhash.xxh3_128_hexdigest(msgspec.json.encode(asked, order="deterministic"))


def check_standing(spec: RunSpec) -> None:
    """Looks for mistakes in a spec's ``audit`` before anything runs.

    Raises:
        UserError: it names a knob that the engine does not have.
    """
    if spec.audit is None:
        return
    python, env = environment(spec.engine)
    config = engine_config(spec.engine, audited_checkpoint(spec))
    engine_knobs = knobs_of(config, env, look(spec.engine.kind, python))
    make_design(spec.audit, (*traffic_knobs(spec.audit, spec.engine.batch_size), *engine_knobs), [0])


def conduct_standing(
    spec: RunSpec,
    checkpoint: str,
    key: str,
    run: Folder,
    progress: Progress | None = None,
    *,
    tell: Callable[[Event], None] | None = None,
    start: Start | None = None,
) -> Standing:
    """Audits a checkpoint and puts the audit into the run directory.

    Args:
        spec: of the run.
        checkpoint: its name.
        key: of this audit.
        run: the run directory, also on object storage.
        progress: is told of every sitting.
        tell: is told of what befalls an engine; may be called from another thread.
        start: how engines are started, if not under a supervisor that keeps what failed ones leave.

    Raises:
        UserError: the engine does not work, or nothing can be asked.
        OSError: the run directory cannot be written to.
    """
    with watched(run, FOLDER, tell) as watch:
        audit, lab = Auditor(spec, checkpoint, start=start or watch.start).run(progress)
        audit = msgspec.structs.replace(audit, troubles=watch.troubles)
        set_aside(run)
    with tempfile.TemporaryDirectory(prefix="proctor-audit-") as place:
        write_audit(Path(place), audit, lab)
        for name in (ANSWERS, TOKENS, REPLAYED, AUDIT):  # the audit itself last: it is whole or not there
            written = Path(place) / name
            if written.exists():
                run.below(FOLDER).write(name, written.read_bytes())
    standing = standing_of(audit, key)
    write_standing(run, standing)
    return standing


def conduct_audit(
    spec: RunSpec,
    checkpoint: str | None,
    place: Path,
    progress: Progress | None = None,
    *,
    start: Start | None = None,
) -> Audit:
    """Audits a checkpoint and puts the audit into a local directory; one that is there already goes to ``earlier/``.

    Args:
        spec: what a run would do; its ``audit`` says how.
        checkpoint: its name; None is the first one.
        place: directory, which is made.
        progress: is told of every sitting.
        start: how engines are started, if not under a supervisor that keeps what failed ones leave.

    Raises:
        UserError: the engine does not work, nothing can be asked, or the directory cannot be written to. If that shows
            only at the end, the audit is written elsewhere, and the error says where.
    """
    check_writable(place)
    name = audited_checkpoint(spec, checkpoint).name
    beside = LocalFolder(place.parent)
    made: tuple[Audit, Lab] | None = None
    try:
        with watched(beside, place.name) as watch:
            auditor = Auditor(spec, name, start=start or watch.start)
            key = key_of(spec, source_of(spec).fingerprint(), name)
            audit, lab = auditor.run(progress)
            made = audit, lab = msgspec.structs.replace(audit, troubles=watch.troubles), lab
            set_aside(beside, place.name)
        write_audit(place, audit, lab)
        write_standing(beside, standing_of(audit, key), place.name)
    except (OSError, UserError) as error:
        if made is None and isinstance(error, UserError):
            raise
        why = error.what if isinstance(error, UserError) else f"cannot be written: {error.strerror or error}"
        raise UserError(why, where=str(place), fix=None if made is None else _rescued(*made)) from error
    return audit


def _rescued(audit: Audit, lab: Lab) -> str:
    """What is to be done about an audit that could not be written where it belongs: it may have taken hours."""
    elsewhere = Path(tempfile.mkdtemp(prefix="proctor-audit-rescued-"))
    try:
        write_audit(elsewhere, audit, lab)
    except UserError:
        shutil.rmtree(elsewhere, ignore_errors=True)
        return "make room there, and audit again"
    return f"it lies in {elsewhere} for now: move it from there"


def standing_of(audit: Audit, key: str) -> Standing:
    """An audit in short."""
    return Standing(
        key=key,
        checkpoint=audit.checkpoint,
        kind=audit.verdict.kind,
        sentence=audit.verdict.sentence,
        exit_code=audit.exit_code,
        seconds=round(audit.seconds, 1),
    )


def read_standing(run: Folder) -> Standing | None:
    """The audit that a run directory holds, in short; None if there is none, or if that file is not understood.

    Raises:
        OSError: the storage fails.
    """
    try:
        return msgspec.json.decode(run.read(f"{FOLDER}/{VERDICT}"), type=Standing)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None


def write_standing(run: Folder, standing: Standing, name: str = FOLDER) -> None:
    """Writes the audit in short into the folder `name` of a run directory.

    Raises:
        OSError: it cannot be written.
    """
    run.below(name).write(VERDICT, msgspec.json.format(msgspec.json.encode(standing), indent=1))


def set_aside(run: Folder, name: str = FOLDER) -> None:
    """Moves an audit that is there already to ``earlier/``: it may have taken long, and nothing is deleted."""
    if run.exists(f"{name}/{AUDIT}"):
        run.move(name, f"earlier/{datetime.now(UTC).strftime('%Y%m%dT%H%M%S.%fZ')}/{name}")
