"""Looks for the user's mistakes before anything is started: an engine's own check, in the engine's own environment."""

from __future__ import annotations

import select
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from proctor.engines.base import EngineConfig
from proctor.rows import UserError
from proctor.supervise import wire
from proctor.supervise.childlog import ChildLog
from proctor.supervise.death import by_os_error
from proctor.supervise.guard import Guard
from proctor.supervise.process import EngineProcess

CHECK_SECONDS = 300.0
TICK_SECONDS = 0.25


def preflight(config: EngineConfig, python: str | None = None, env: Mapping[str, str] | None = None) -> None:
    """Runs the engine's `check` in a child of the right interpreter; takes at most about `CHECK_SECONDS`.

    Raises:
        UserError: what the engine says is wrong, or why it cannot even say so.
    """
    guard = Guard()
    with tempfile.TemporaryDirectory(prefix="proctor-") as directory:
        log = ChildLog(Path(directory) / "preflight.log")
        try:
            process = EngineProcess(config, log, guard, python=python, env=env, check_only=True)
        except OSError as error:
            raise by_os_error(error, python).mistake or error from None
        else:
            try:
                _await_check(process)
            finally:
                process.end()
        finally:
            guard.close()
            log.close()


def _await_check(process: EngineProcess) -> None:
    give_up = time.monotonic() + CHECK_SECONDS
    while time.monotonic() < give_up:
        process.line.flush()
        select.select([process.line], [], [], TICK_SECONDS)
        if any(isinstance(message, wire.Checked) for message in process.receive()):
            return
        found = process.death()
        if found is not None:
            raise found.mistake or UserError(f"the engine cannot start: {found.message}", where="engine")
    raise UserError(f"the engine's own check did not end within {CHECK_SECONDS:g} s", where="engine")
