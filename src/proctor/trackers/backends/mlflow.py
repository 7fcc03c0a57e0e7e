"""MLflow, through its client alone: the fluent interface would log the environment and join threads at exit.

Sizes of a batch and characters of a name are those of the REST interface
(https://mlflow.org/docs/latest/api_reference/rest-api.html#log-batch).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from proctor.trackers.backends.base import Backend, RefusedError
from proctor.trackers.entries import Entry, numbers, texts
from proctor.trackers.messages import Open

_KEY_TAG = "proctor.key"
_METRICS, _PARAMS, _TAGS = 900, 100, 100
_NAME = re.compile(r"[^\w\-./ ]")
_LONGEST_NAME = 250
_SETTINGS = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "20", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}
"""The process is ended and started anew when a request fails, so its library need not try for minutes by itself."""
_REFUSALS = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")


def opened(message: Open) -> Backend:
    """Opens the run that `message` names, or makes it."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=message.settings["uri"])
    experiment = _experiment(client, message.settings["experiment"])
    found = client.search_runs([experiment], filter_string=f"tags.`{_KEY_TAG}` = '{message.key}'", max_results=1)
    if found:
        run_id = found[0].info.run_id
        client.set_terminated(run_id, "RUNNING")
    else:
        run_id = client.create_run(experiment, tags={_KEY_TAG: message.key}, run_name=message.run_name).info.run_id
    return _Run(client, run_id)


def _experiment(client: Any, name: str) -> str:
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    try:
        return str(client.create_experiment(name))
    except MlflowException:
        made_by_another = client.get_experiment_by_name(name)
        if made_by_another is None:
            raise
        return str(made_by_another.experiment_id)


class _Run:
    """A run on an MLflow server. What is sent twice is there once: a metric is known by name, step and time."""

    def __init__(self, client: Any, run_id: str) -> None:
        self._client, self._id = client, run_id

    def send(self, entries: list[Entry]) -> bool:
        from mlflow.entities import Metric, Param, RunTag
        from mlflow.exceptions import MlflowException

        drawn = [entry for entry in entries if entry.kind != "params"]
        metrics = [Metric(_name(k), v, _ms(e), e.step) for e in drawn for k, v in numbers(e).items()]
        tags = [RunTag(_name(k), v) for e in drawn for k, v in texts(e).items()]
        set_to = {k: v for e in entries if e.kind == "params" for k, v in e.values.items()}
        params = [Param(_name(k), str(v)) for k, v in set_to.items()]
        try:
            for part in _chunks(metrics, _METRICS):
                self._client.log_batch(self._id, metrics=part)
            for part in _chunks(params, _PARAMS):
                self._client.log_batch(self._id, params=part)
            for part in _chunks(tags, _TAGS):
                self._client.log_batch(self._id, tags=part)
        except MlflowException as error:
            if error.error_code in _REFUSALS:
                raise RefusedError(str(error)) from error
            raise
        return True

    def finish(self, ok: bool | None) -> None:
        self._client.set_terminated(self._id, "FAILED" if ok is False else "FINISHED")


def _name(text: str) -> str:
    return _NAME.sub("_", text)[:_LONGEST_NAME]


def _ms(entry: Entry) -> int:
    return round(entry.time * 1000)


def _chunks(items: Sequence[Any], size: int) -> Iterator[list[Any]]:
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part
