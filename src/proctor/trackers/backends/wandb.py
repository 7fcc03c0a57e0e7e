"""Weights & Biases, without its looks at git, code, packages, console and machine."""

from __future__ import annotations

import os
from typing import Any

from proctor.trackers.backends.base import Backend
from proctor.trackers.entries import Entry
from proctor.trackers.messages import Open


def opened(message: Open) -> Backend:
    """Opens the run that `message` names, or makes it."""
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    settings = message.settings
    quiet = wandb.Settings(
        disable_code=True,
        disable_git=True,
        disable_job_creation=True,
        save_code=False,
        x_disable_meta=True,
        x_disable_stats=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
        console="off",
        silent=True,
    )
    run = wandb.init(
        project=settings["project"],
        entity=settings["entity"],
        mode=settings["mode"],
        dir=message.directory,
        id=message.key,
        name=message.run_name,
        resume="allow",
        settings=quiet,
    )
    return _Run(run)


class _Run:
    """A run at W&B. Its library sends by itself and says only at the end that everything has arrived; what it is handed
    twice it drops, because the step is not a new one."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def send(self, entries: list[Entry]) -> bool:
        for entry in entries:
            if entry.kind == "params":
                self._run.config.update(entry.values, allow_val_change=True)
            elif entry.kind == "summary":
                self._run.summary.update(entry.values)
            else:
                self._run.log(entry.values, step=entry.step)
        return False

    def finish(self, ok: bool | None) -> None:
        self._run.finish(exit_code=1 if ok is False else 0)
