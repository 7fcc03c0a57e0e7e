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
from proctor.supervise.death import Death, by_os_error
from proctor.supervise.guard import Guard
from proctor.supervise.process import EngineProcess

CHECK_SECONDS = 300.0
CHECKS = 2
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
            for left in reversed(range(CHECKS)):
                found = _check(config, log, guard, python, env)
                if found is None:
                    return
                # A child that a signal ended was in somebody's way, short of memory perhaps: no mistake of the user's.
                if found.mistake is not None or found.signal_name is None or not left:
                    raise found.mistake or UserError(f"the engine cannot start: {found.message}", where="engine")
        finally:
            guard.close()
            log.close()


def _check(
    config: EngineConfig, log: ChildLog, guard: Guard, python: str | None, env: Mapping[str, str] | None
) -> Death | None:
    """One child; how it came to its end if that was before it had checked anything."""
    try:
        process = EngineProcess(config, log, guard, python=python, env=env, check_only=True)
    except OSError as error:
        raise by_os_error(error, python).mistake or error from None
    try:
        return _await_check(process)
    finally:
        process.end()


def _await_check(process: EngineProcess) -> Death | None:
    give_up = time.monotonic() + CHECK_SECONDS
    while time.monotonic() < give_up:
        process.line.flush()
        select.select([process.line], [], [], TICK_SECONDS)
        if any(isinstance(message, wire.Checked) for message in process.receive()):
            return None
        found = process.death()
        if found is not None:
            return found
    raise UserError(f"the engine's own check did not end within {CHECK_SECONDS:g} s", where="engine")
