"""Takes an engine from checkpoint to checkpoint, and lets it serve nothing that is not proven.

The proof of a swap is a fingerprint: the engine's answers to fixed probes have to be those of an engine that was
started with the checkpoint, bit by bit. Where there is no such fingerprint yet, one is made by starting an engine: this
one, or a second one beside it. A swap that is refused, fails or is not proven ends with a start as well. So there is
always a way on, and what differs is how long it takes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace

from proctor.engines.base import EngineConfig
from proctor.engines.fingerprint import Fingerprint, ProbeAnswer, differences, fingerprint, key
from proctor.engines.fingerprint_store import FingerprintStore
from proctor.engines.surroundings import hardware, look
from proctor.engines.weights import Weights, read_weights
from proctor.rows import Event, told
from proctor.storage.folder import Folder
from proctor.supervise.settings import Settings
from proctor.supervise.supervisor import Supervisor

_STEADY_FAILURES = ("infer.rejected", "infer.empty")
"""What a probe may end with on every engine of a checkpoint; any other failure says nothing about the checkpoint."""


@dataclass(frozen=True, slots=True)
class SwapSetup:
    """How one engine is swapped.

    Attributes:
        fingerprints: where those of started engines are kept.
        beside: make a fingerprint that is missing by a second engine, while the first works for the checkpoint before.
    """

    fingerprints: Folder
    beside: bool = False


Read = Callable[[EngineConfig], Weights]
"""Reads a checkpoint. Raises OSError or UserError."""


class HotSwap:
    """The checkpoints of one supervised engine. Used from one thread at a time.

    Attributes:
        config: what the engine answers with.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        config: EngineConfig,
        setup: SwapSetup,
        settings: Settings,
        tell: Callable[[Event], None],
        *,
        name: str,
        read: Read = read_weights,
    ) -> None:
        self.config = config
        self._supervisor, self._setup, self._settings, self._name = supervisor, setup, settings, name
        self._tell, self._read = tell, read
        self._store = FingerprintStore(setup.fingerprints)
        self._ahead: Ahead | None = None
        self._served = False
        self._unsteady = ""

    def to(self, config: EngineConfig) -> None:
        """Makes the engine answer with the checkpoint of `config`; when it returns, that is proven, or the engine was
        started with it. Only while no row is under way."""
        if config == self.config and self._served:
            return
        began = time.monotonic()
        ahead = self._taken(config)
        try:
            if config == self.config:
                self._record(config, ahead)
            else:
                self._change(config, ahead, began)
        finally:
            ahead.close()
        self._served = True

    def read_ahead(self, config: EngineConfig) -> None:
        """Begins to read the checkpoint that comes next; returns at once."""
        if self._ahead is None or self._ahead.config != config:
            self._drop_ahead()
            self._ahead = self._begin(config)

    def close(self) -> None:
        """Lets go of what was read ahead."""
        self._drop_ahead()

    # --- one change

    def _change(self, config: EngineConfig, ahead: Ahead, began: float) -> None:
        expected, reason = self._expected(config, ahead)
        self.config = config
        if expected is not None:
            reason = self._swap(config, ahead, expected)
            if not reason:
                seconds = time.monotonic() - began
                self._say("engine.swapped", "proven by its fingerprint", config, duration=seconds)
                return
            self._say("engine.swap_failed", reason, config, action="started anew with the checkpoint")
        else:
            self._say("engine.swap_skipped", reason, config, action="started anew with the checkpoint")
        self._supervisor.succeed(config, cold=True).result()
        self._record(config, ahead)

    def _expected(self, config: EngineConfig, ahead: Ahead) -> tuple[Fingerprint | None, str]:
        """The fingerprint that proves a swap to `config`, or why there is none."""
        if self._unsteady:
            return None, self._unsteady
        weights = ahead.weights()
        if weights is None:
            return None, f"the checkpoint cannot be read ahead: {ahead.trouble}"
        found = self._stored(config, weights)
        return found, "" if found else "no started engine has answered the probes yet"

    def _swap(self, config: EngineConfig, ahead: Ahead, expected: Fingerprint) -> str:
        """Swaps; says why the engine is not to be trusted, or nothing."""
        weights = ahead.weights()
        starts = self._supervisor.counters.starts
        done = self._supervisor.succeed(config, weights=weights.path if weights else "").result()
        if done.how != "swapped":
            return f"{done.how}: {done.reason}"
        different = differences(expected, self._fingerprint())
        if self._supervisor.counters.starts != starts:
            return "the engine ended while it answered the probes"
        return f"its answers are not the checkpoint's: {different}" if different else ""

    def _record(self, config: EngineConfig, ahead: Ahead) -> None:
        """The engine was just started with `config`: its fingerprint is the one to compare with."""
        weights = ahead.weights()
        if weights is None:
            return
        found = self._fingerprint()  # first of all: the versions in the key are told by the engine that is loaded
        different = record(self._store, self._key(config, weights), found)
        if different:
            self._unsteady = f"started engines do not answer alike here, so no swap can be proven: {different}"
            self._say("engine.unsteady", self._unsteady, config, action="no more swaps")

    def _fingerprint(self) -> Fingerprint:
        return fingerprint(lambda request: self._supervisor.submit(request).result())

    def _stored(self, config: EngineConfig, weights: Weights) -> Fingerprint | None:
        try:
            return self._store.get(self._key(config, weights))
        except OSError:
            return None

    def _key(self, config: EngineConfig, weights: Weights) -> str:
        env = self._settings.env
        site = look(config.kind, self._settings.python)
        return key(config, weights.content_id, self._supervisor.versions, hardware(site, env), env)

    # --- what comes next

    def _begin(self, config: EngineConfig) -> Ahead:
        return Ahead(config, self._read, self._beside if self._setup.beside else None)

    def _taken(self, config: EngineConfig) -> Ahead:
        """What was read of `config`, or is read from now on."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead.config == config:
            return ahead
        if ahead is not None:
            ahead.close()
        return Ahead(config, self._read)

    def _drop_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def _beside(self, config: EngineConfig, weights: Weights) -> None:
        """A second engine answers the probes and ends, unless a fingerprint is there."""
        name = self._key(config, weights)
        if self._store.get(name) is not None:
            return
        settings = replace(self._settings, init_attempts=1)
        supervisor = Supervisor(config, settings, name=f"{self._name}-beside", on_event=_unheard)
        supervisor.start()
        try:
            record(self._store, name, fingerprint(lambda request: supervisor.submit(request).result()))
        finally:
            supervisor.close(timeout=10.0)

    def _say(
        self, kind: str, message: str, config: EngineConfig, *, action: str = "", duration: float | None = None
    ) -> None:
        self._tell(
            Event(kind, message=f"{config.model}: {message}", action=action, engine=self._name, duration=duration)
        )


class Ahead:
    """A checkpoint that is being read by a thread of its own."""

    def __init__(
        self, config: EngineConfig, read: Read, beside: Callable[[EngineConfig, Weights], None] | None = None
    ) -> None:
        self.config = config
        self.trouble = ""
        self._beside = beside
        self._read: Future[Weights | None] = Future()
        self._thread = threading.Thread(target=self._run, args=(read,), name="proctor-ahead", daemon=True)
        self._thread.start()

    def weights(self) -> Weights | None:
        """What was read, once it is; None if it could not be, and then `trouble` says why."""
        self._thread.join()
        return self._read.result()

    def close(self) -> None:
        """Lets go of it, as soon as it is read."""
        self._read.add_done_callback(_let_go)

    def _run(self, read: Read) -> None:
        weights = None
        try:
            weights = read(self.config)
            if self._beside is not None:
                self._beside(self.config, weights)
        except Exception as error:  # whatever keeps it from being read ahead, the engine may still be started with it
            self.trouble = told(error)
        self._read.set_result(weights)


def record(store: FingerprintStore, name: str, found: Fingerprint) -> str:
    """Stores the fingerprint of an engine that was started, unless it shows the engine at fault.

    Returns:
        What differs from one that another engine has stored; empty if nothing does.
    """
    if not all(map(_says_something, found.answers)):
        return ""
    try:
        return differences(store.put(name, found), found)
    except OSError:
        return ""


def _says_something(answer: ProbeAnswer) -> bool:
    return not answer.failure or answer.failure in _STEADY_FAILURES


def _let_go(read: Future[Weights | None]) -> None:
    weights = read.result()
    if weights is not None:
        weights.close()


def _unheard(event: Event) -> None:
    """Nobody is told of the second engine: it serves no row."""
