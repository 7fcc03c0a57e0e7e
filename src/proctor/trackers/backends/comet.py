"""Comet, without its looks at git, code, console and machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from proctor.trackers.backends.base import Backend
from proctor.trackers.entries import Entry, numbers, texts
from proctor.trackers.messages import Open

_FLUSH_SECONDS = 30
_NOTHING_AUTOMATIC: dict[str, Any] = {
    "log_code": False,
    "log_graph": False,
    "log_git_metadata": False,
    "log_git_patch": False,
    "log_env_details": False,
    "log_env_gpu": False,
    "log_env_cpu": False,
    "log_env_host": False,
    "log_env_network": False,
    "log_env_disk": False,
    "auto_param_logging": False,
    "auto_metric_logging": False,
    "auto_output_logging": False,
    "auto_histogram_tensorboard_logging": False,
    "parse_args": False,
    "display_summary_level": 0,
}


def opened(message: Open) -> Backend:
    """Opens the experiment that `message` names, or makes it."""
    os.environ.setdefault("COMET_LOGGING_CONSOLE", "CRITICAL")
    import comet_ml

    settings = message.settings
    offline = settings["mode"] == "offline"
    assert message.directory is not None or not offline
    if offline:
        Path(str(message.directory)).mkdir(parents=True, exist_ok=True)
    config = comet_ml.ExperimentConfig(name=message.run_name, offline_directory=message.directory, **_NOTHING_AUTOMATIC)
    experiment = comet_ml.start(
        project_name=settings["project"],
        workspace=settings["workspace"],
        experiment_key=message.key,
        mode="get_or_create",
        online=not offline,
        experiment_config=config,
    )
    return _Run(experiment)


class _Run:
    """An experiment at Comet."""

    def __init__(self, experiment: Any) -> None:
        self._experiment = experiment

    def send(self, entries: list[Entry]) -> bool:
        for entry in entries:
            if entry.kind == "params":
                self._experiment.log_parameters(entry.values)
            else:
                self._experiment.log_metrics(numbers(entry), step=entry.step)
                if found := texts(entry):
                    self._experiment.log_others(found)
        return False

    def finish(self, ok: bool | None) -> None:
        self._experiment.log_other("ok", "unknown" if ok is None else str(ok))
        if not self._experiment.flush(timeout=_FLUSH_SECONDS):
            raise ConnectionError("Comet has not taken everything")
        self._experiment.end()
