"""Takes an engine from checkpoint to checkpoint, and lets it serve nothing that is not proven.

The proof of a swap is a fingerprint: the engine's answers to fixed probes have to be those of an engine that was
started with the checkpoint, bit by bit. Where there is no such fingerprint yet, one is made by starting an engine: this
one, or a second one beside it. A swap that is refused, fails or is not proven ends with a start as well. So there is
always a way on, and what differs is how long it takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from proctor.engines.base import EngineConfig
from proctor.engines.fingerprint import Fingerprint, ProbeAnswer, differences, fingerprint, key
from proctor.engines.fingerprint_store import FingerprintStore
from proctor.engines.surroundings import hardware, look
from proctor.engines.weights import Weights, read_weights, stamps
from proctor.rows import Event, told
from proctor.storage.folder import Folder
from proctor.supervise.ahead import Ahead, Read
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


Stamps = Callable[[EngineConfig], Mapping[str, str]]
"""See `proctor.engines.weights.stamps`."""


class HotSwap:
    """The checkpoints of one supervised engine. Used from one thread at a time.

    Args:
        supervisor: runs the engine.
        config: what it was started with.
        setup: where proofs are kept, and how they are made.
        settings: the supervisor's.
        tell: hears of every change.
        name: of the engine, for events.
        seen: stamps of the checkpoint's files before the engine was started.
        read: reads a checkpoint ahead.
        look: tells whether a checkpoint's files have changed.

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
        seen: Mapping[str, str],
        read: Read = read_weights,
        look: Stamps = stamps,
    ) -> None:
        self.config = config
        self._supervisor, self._setup, self._settings, self._name = supervisor, setup, settings, name
        self._tell, self._read, self._look, self._seen = tell, read, look, seen
        self._store = FingerprintStore(setup.fingerprints)
        self._ahead: Ahead | None = None
        self._state: Literal["started", "serving", "unsure"] = "started"
        self._unsteady = ""

    def to(self, config: EngineConfig) -> None:
        """Makes the engine answer with the checkpoint of `config`; when it returns, that is proven, or the engine was
        started with it. Only while no row is under way."""
        if config == self.config and self._state == "serving":
            return
        state, self._state = self._state, "unsure"  # until all went well: what an error has left behind has no proof
        began = time.monotonic()
        ahead = self._taken(config)
        try:
            if config == self.config and state == "started":
                self._record(config, ahead)
            else:
                self._change(config, ahead, began)
        finally:
            ahead.close()
        self._state = "serving"

    def read_ahead(self, config: EngineConfig) -> None:
        """Begins to read the checkpoint that comes next; returns at once."""
        if self._ahead is None or self._ahead.config != config:
            self._drop_ahead()
            self._ahead = self._begin(config)

    def close(self) -> None:
        """Lets go of what was read ahead."""
        self._drop_ahead()
        self._tell_if_changed()

    # --- one change

    def _change(self, config: EngineConfig, ahead: Ahead, began: float) -> None:
        expected, reason = self._expected(config, ahead)
        self._tell_if_changed()
        self.config, self._seen = config, self._look(config)
        if expected is not None:
            reason = self._swap(config, ahead, expected)
            if not reason:
                seconds = time.monotonic() - began
                self._say("engine.swapped", "proven by its fingerprint", config, duration=seconds)
                return
            self._say("engine.swap_failed", reason, config, action="started anew with the checkpoint")
        else:
            self._say("engine.swap_skipped", reason, config, action="started anew with the checkpoint")
        ahead.close()  # the engine reads it from its files: there need not be room for both
        self._supervisor.succeed(config, cold=True).result()
        self._record(config, ahead)

    def _expected(self, config: EngineConfig, ahead: Ahead) -> tuple[Fingerprint | None, str]:
        """The fingerprint that proves a swap to `config`, or why there is none."""
        if self._unsteady:
            return None, self._unsteady
        weights = ahead.weights()
        if weights is None:
            return None, f"the checkpoint cannot be read ahead: {ahead.trouble}"
        if not self._supervisor.versions:  # Ray has made this actor anew, for whom another checkpoint's turn it is
            return None, "the engine has not been loaded yet"
        try:
            found = self._store.get(self._key(config, weights))
        except OSError as error:
            return None, f"the fingerprints cannot be read: {told(error)}"
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
        if different:
            return f"its answers are not the checkpoint's: {different}"
        return "" if self._still(config, weights) else "its files have changed while it was swapped in"

    def _record(self, config: EngineConfig, ahead: Ahead) -> None:
        """The engine was just started with `config`: its fingerprint is the one to compare with."""
        weights = ahead.weights()
        if weights is None:
            return
        found = self._fingerprint()  # first of all: the versions in the key are told by the engine that is loaded
        if self._seen != weights.stamps or not self._still(config, weights):
            return  # nobody knows what content it was started with
        try:
            different = record(self._store, self._key(config, weights), found)
        except OSError as error:
            self._say("engine.fingerprint_lost", told(error), config, action="the next run starts an engine for it")
            return
        if different:
            self._unsteady = f"started engines do not answer alike here, so no swap can be proven: {different}"
            self._say("engine.unsteady", self._unsteady, config, action="no more swaps")

    def _fingerprint(self) -> Fingerprint:
        return fingerprint(lambda request: self._supervisor.submit(request).result())

    def _still(self, config: EngineConfig, weights: Weights | None) -> bool:
        """Whether the checkpoint's files are those that were read."""
        return weights is not None and weights.stamps == self._look(config)

    def _tell_if_changed(self) -> None:
        now = self._look(self.config)
        if now != self._seen:
            self._seen = now
            message = "its files have changed while it was evaluated: its answers may be of either content"
            self._say("engine.checkpoint_changed", message, self.config)

    def _key(self, config: EngineConfig, weights: Weights) -> str:
        env = self._settings.env
        site = look(config.kind, self._settings.python)
        return key(config, weights.content_id, self._supervisor.versions, hardware(site, env), env)

    # --- what comes next

    def _begin(self, config: EngineConfig) -> Ahead:
        return Ahead(config, self._read, self._beside if self._setup.beside else None)

    def _taken(self, config: EngineConfig) -> Ahead:
        """What was read of `config`, or is read from now on: also where its files have changed since."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead.config == config and self._still(config, ahead.weights()):
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
        if not self._supervisor.versions or self._store.get(name) is not None:
            return
        settings = replace(self._settings, init_attempts=1)
        supervisor = Supervisor(config, settings, name=f"{self._name}-beside", on_event=_unheard)
        supervisor.start()
        try:
            found = fingerprint(lambda request: supervisor.submit(request).result())
            if self._still(config, weights):
                record(self._store, name, found)
        finally:
            supervisor.close(timeout=10.0)

    def _say(
        self, kind: str, message: str, config: EngineConfig, *, action: str = "", duration: float | None = None
    ) -> None:
        self._tell(
            Event(kind, message=f"{config.model}: {message}", action=action, engine=self._name, duration=duration)
        )


def record(store: FingerprintStore, name: str, found: Fingerprint) -> str:
    """Stores the fingerprint of an engine that was started, unless it shows the engine at fault, or no probe was
    answered at all: then every checkpoint would have the same.

    Returns:
        What differs from one that another engine has stored; empty if nothing does.

    Raises:
        OSError: storage fails.
    """
    if not all(map(_is_the_checkpoints, found.answers)) or not any(a.token_ids or a.text for a in found.answers):
        return ""
    return differences(store.put(name, found), found)


def _is_the_checkpoints(answer: ProbeAnswer) -> bool:
    return not answer.failure or answer.failure in _STEADY_FAILURES


def _unheard(event: Event) -> None:
    """Nobody is told of the second engine: it serves no row."""
