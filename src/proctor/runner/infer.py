"""Third stage: a Ray actor that owns one supervised engine and feeds it several blocks at a time."""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pyarrow as pa

from proctor.engines import EngineConfig
from proctor.rows import ErrorKind, Event, Failure, Prompt, Request, Response, Sampling
from proctor.runner.blocks import INFERRED, table_of
from proctor.runner.evidence import Evidence
from proctor.runner.hub import HubClient
from proctor.storage.folder import Folder
from proctor.supervise import Settings, Supervisor
from proctor.supervise.hotswap import SwapSetup

PULSE_SECONDS = 2.0
_PULSE_PAUSE = 0.2
_CARRIED = [
    name for name in INFERRED.names if name in ("row_id", "sample_id", "notice", "prompt", "target", "n_images")
]


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """What an actor needs to start its engine, and the run directory that its logs belong to.

    Attributes:
        swap: how it takes over further checkpoints; None where it serves only one.
    """

    config: EngineConfig
    settings: Settings
    sampling: Sampling
    run: Folder
    swap: SwapSetup | None = None


class Infer:
    """Answers blocks of prepared rows. Several calls run at once, so that the engine never drains between blocks.

    Never raises for a row's or an engine's fault: the supervisor answers every request, with a failure if need be.
    """

    def __init__(self, setup: EngineSetup, hub: HubClient) -> None:
        self._sampling = setup.sampling
        self.name = f"{platform.node()}:{os.getpid()}"
        evidence = Evidence(setup.run)
        self._settings = replace(setup.settings, stalls_dir=evidence.directory)

        def tell(event: Event) -> None:
            evidence.heed(event)
            hub.emit(event)

        self._tell = tell
        self._supervisor = Supervisor(setup.config, self._settings, name=self.name, on_event=tell)
        self._supervisor.start()
        self._heart = Heart(self.name, hub)

    def __call__(self, block: pa.Table) -> pa.Table:
        """One block: requests go in together, rows come out in their order."""
        with self._heart.holding(block.num_rows):
            return self._answered(block)

    def _answered(self, block: pa.Table) -> pa.Table:
        rows = block.drop_columns("images").to_pylist()
        images = block["images"]
        waiting = [
            self._submit(row, images[position]) if row["error_kind"] is None else None
            for position, row in enumerate(rows)
        ]
        answered = [self._merged(row, future) for row, future in zip(rows, waiting, strict=True)]
        return table_of(answered, INFERRED, block.num_rows)

    def _submit(self, row: dict[str, Any], images: pa.Scalar) -> Future[Response]:
        prompt = msgspec.json.decode(row["prompt"], type=Prompt)
        return self._supervisor.submit(
            Request(id=row["row_id"], prompt=prompt, images=tuple(images.as_py() or ()), sampling=self._sampling)
        )

    def _merged(self, row: dict[str, Any], future: Future[Response] | None) -> dict[str, Any]:
        return row if future is None else {**row, **_outcome(future.result()), "engine": self.name}

    def close(self) -> None:
        """Ends the engine."""
        heart = getattr(self, "_heart", None)
        if heart is not None:
            heart.stop()
        supervisor = getattr(self, "_supervisor", None)
        if supervisor is not None:
            supervisor.close(timeout=5.0)

    def __del__(self) -> None:
        self.close()


class Heart:
    """Tells the hub, every `PULSE_SECONDS` and soon after a change, that an engine's actor lives and what it has.

    Ray does not say when an actor is gone with its node. The thread must not hold the actor: it would never end.
    """

    def __init__(self, engine: str, hub: HubClient) -> None:
        self._engine, self._hub = engine, hub
        self._rows = 0
        self._counting = threading.Lock()
        self._changed = threading.Event()
        self._stopped = threading.Event()
        threading.Thread(target=self._beat, name="proctor-pulse", daemon=True).start()

    @contextmanager
    def holding(self, rows: int) -> Iterator[None]:
        """The actor has `rows` more while the block runs."""
        self._add(rows)
        try:
            yield
        finally:
            self._add(-rows)

    def stop(self) -> None:
        """No more pulses."""
        self._stopped.set()
        self._changed.set()

    def _add(self, rows: int) -> None:
        with self._counting:
            self._rows += rows
        self._changed.set()

    def _beat(self) -> None:
        while not self._stopped.is_set():
            self._changed.clear()
            self._hub.pulse(self._engine, self._rows)
            self._stopped.wait(_PULSE_PAUSE)
            self._changed.wait(PULSE_SECONDS)


def _outcome(response: Response) -> dict[str, Any]:
    outcome: dict[str, Any] = {"attempts": response.attempts, "latency_s": response.latency_s}
    failure = response.failure
    if failure is None and response.text is None:
        failure = Failure(ErrorKind.INFER_FAILED, "the engine returned neither a text nor an error")
    if failure is not None:
        return {**outcome, "error_kind": failure.kind.value, "error_message": failure.message}
    return {
        **outcome,
        "answer": response.text,
        "finish_reason": response.finish_reason,
        "prompt_tokens": response.prompt_tokens,
        "token_ids": list(response.token_ids),
        "logprobs": None if response.logprobs is None else list(response.logprobs),
    }
