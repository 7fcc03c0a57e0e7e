"""The audit that a run carries: a sample of its rows, asked in many ways before the run's own engines start.

It runs as a Ray task with the resources of one engine. Whatever befalls it costs the audit and not the run, and what it
finds changes nothing but what is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import ray

from proctor.audit.model import Sitting
from proctor.audit.standing import (
    Standing,
    audited_checkpoint,
    conduct_standing,
    key_of,
    read_standing,
    unaudited,
    write_standing,
)
from proctor.rows import Event, UserError, told
from proctor.runner.exam import Exam
from proctor.runner.hub import HubClient
from proctor.runner.placement import engine_resources, placed
from proctor.runner.progress import Tracker
from proctor.runner.stream import ray_names
from proctor.spec import RunSpec
from proctor.storage.folder import Folder

_WAIT_SECONDS = 0.5
_END_SECONDS = 10.0


def audit_first(exam: Exam, tracker: Tracker, hub: HubClient) -> None:
    """Audits the first checkpoint if the spec asks for it, unless the run directory holds that very audit already.

    Only the first: what is audited is the engine with its settings, and checkpoints differ in their weights alone. An
    audit of each would take the engines' time as many times over. Which ones are not audited is said with the verdict.
    """
    if exam.spec.audit is None:
        return
    checkpoint = audited_checkpoint(exam.spec).name
    try:
        key = key_of(exam.spec, exam.source.fingerprint(), checkpoint)
        kept = read_standing(exam.run.folder)
    except (UserError, OSError) as error:
        _tell(Standing.failed("", checkpoint, told(error)), exam, hub)
        return
    if kept is not None and kept.key == key and not kept.failure:
        return
    hub.emit(Event("audit.started", message=f"{checkpoint}: {exam.spec.audit.sample} rows at most"))
    try:
        found = _in_a_task(exam, checkpoint, key, tracker, hub)
    except Exception as error:  # a dead node, no room, a worker that was killed
        tracker.check_held()
        found = Standing.failed(key, checkpoint, told(error))
    finally:
        hub.note("")
    _tell(found, exam, hub)


def _tell(found: Standing, exam: Exam, hub: HubClient) -> None:
    if found.failure:
        with suppress(OSError):  # then the run says it all the same, by its events
            write_standing(exam.run.folder, found)
    kind, action = ("audit.failed", "the run goes on without it") if found.failure else ("audit.verdict", "")
    data: dict[str, str | int | float | bool | None] = {"verdict": found.kind, "exit_code": found.exit_code}
    if others := unaudited(exam.spec, found.checkpoint):
        data["not_audited"] = ", ".join(others)
    message = f"{found.checkpoint}: {found.sentence}"
    hub.emit(Event(kind, action=action, duration=found.seconds or None, message=message, data=data))


def _in_a_task(exam: Exam, checkpoint: str, key: str, tracker: Tracker, hub: HubClient) -> Standing:
    """Waits for the audit, as long as this driver holds the run directory.

    Raises:
        StorageError: it does not any more.
    """
    with placed(exam.spec, 1) as place:
        options: Mapping[str, Any] = {"num_cpus": 0, **ray_names(engine_resources(exam.spec)), **place}
        task = ray.remote(max_retries=0, **options)(_audit)
        running = task.remote(exam.spec, checkpoint, key, exam.run.folder, hub)
        try:
            while not ray.wait([running], timeout=_WAIT_SECONDS)[0]:
                tracker.check_held()
            found: Standing = ray.get(running)
        except BaseException:
            _end(running)
            raise
    return found


def _end(running: ray.ObjectRef) -> None:
    """Ends the audit: in good order, or else with its worker, which takes the engine along."""
    with suppress(Exception):
        ray.cancel(running)
        if not ray.wait([running], timeout=_END_SECONDS)[0]:
            ray.cancel(running, force=True)


def _audit(spec: RunSpec, checkpoint: str, key: str, run: Folder, hub: HubClient) -> Standing:
    """The whole audit, in a worker of Ray. Never raises for what an engine, a row or the storage does."""

    def progress(sitting: Sitting, done: int, planned: int) -> None:
        hub.note(f"audit: {done} of {planned} sittings ({sitting.arm})")

    try:
        return conduct_standing(spec, checkpoint, key, run, progress, tell=hub.emit)
    except Exception as error:
        return Standing.failed(key, checkpoint, told(error))
