"""The engine contract: an engine pulls requests when it has room and yields responses as they finish, in any order.

One shape serves continuous batching (vLLM), micro-batches (transformers) and concurrency (HTTP).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol

import msgspec

from proctor.engines.compiling.settings import Compile, EncoderSwitches
from proctor.rows import Request, Response

Reporter = Callable[[int], None]
"""Called by an engine with the number of tokens it has just decoded: progress, which keeps the stall deadline away.

0 is a sign of life: for an engine that waits for something with a deadline of its own, such as a server's reply.
"""


def unheard(_tokens: int) -> None:
    """A `Reporter` that tells nobody."""


class EngineDied(Exception):  # noqa: N818 (a state of the engine)
    """Out of `Engine.stream`: a process that the engine works with is dead, and the engine with it."""


class SwapRefused(Exception):  # noqa: N818 (a verdict)
    """Out of `Engine.swap`: this engine cannot take over that checkpoint; it is as it was, and serves its old one.

    Attributes:
        reason: one line.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Fault(msgspec.Struct, frozen=True):
    """A planted fault; the fields are those of `proctor.spec.FaultSpec`."""

    kind: Literal[
        "raise", "crash", "kill", "exit", "oom", "stall", "hold_gil", "stop", "blank", "truncate", "delay", "reject"
    ]
    rows: tuple[int, ...] = ()
    every: int | None = None
    below: int = 1
    times: int | None = None
    seconds: float = 1.0


class EngineConfig(msgspec.Struct, frozen=True):
    """All an engine needs to know; travels to the child process as MessagePack.

    Attributes:
        kind: ``transformers``, ``vllm``, ``openai`` or ``scripted``.
        model: model directory, or the model's name for a server.
        dtype: ``auto``, ``float32``, ``bfloat16`` or ``float16``.
        batch_size: rows an engine works on at once (micro-batch, ``max_num_seqs``, open HTTP requests).
        device: ``auto``, ``cpu``, ``cuda``.
        max_model_len: most tokens of prompt and answer together; None is the model's own limit.
        multiprocessing: ``vllm``: whether its engine core and workers run in processes of their own.
        compile: ``transformers``: which parts of the vision encoder are compiled, and how; None: nothing is.
        encoder: ``vllm``: its own switches for the vision encoder; None: as vLLM has them.
        options: further arguments for the engine's own constructor, checked by the engine.
        faults: faults to plant in front of the engine (see `proctor.engines.faults`).
        fault_state: directory where planted faults count how often they have happened, across restarts.
    """

    kind: str
    model: str = ""
    dtype: str = "auto"
    batch_size: int = 16
    device: str = "auto"
    max_model_len: int | None = None
    multiprocessing: bool = False
    compile: Compile | None = None
    encoder: EncoderSwitches | None = None
    options: dict[str, Any] = {}
    faults: tuple[Fault, ...] = ()
    fault_state: str = ""


class Feed(Protocol):
    """Where an engine takes its requests from."""

    def take(self, room: int, *, wait: bool) -> list[Request]:
        """Up to `room` requests that are waiting, oldest first.

        With `wait` the call blocks until there is at least one; an empty list then means the end of the feed.
        Without `wait` an empty list means that nothing is waiting now.
        """


class Engine(Protocol):
    """Runs one model. Made in the child process by `proctor.engines.registry.make_engine`."""

    def check(self) -> None:
        """Looks for mistakes that need no weights: a missing model directory, an option the engine does not know.

        Raises:
            UserError: what is wrong and what would be right.
        """

    def load(self) -> None:
        """Loads the model. Slow; raises on failure."""

    def stream(self, feed: Feed, report: Reporter) -> Iterator[Response]:
        """Answers every request of `feed`, exactly one response each, as they finish; ends when the feed has ended.

        A request that cannot be served gets a response with a failure; it never fails its neighbours.
        An exception out of `stream` means that the engine itself is broken: the supervisor starts a new one.
        """

    def swap(self, config: EngineConfig, weights: str = "") -> None:
        """From now on answers with the checkpoint of `config`. Only called while no request is in flight.

        A swap that returns proves nothing: the owner compares a fingerprint (`proctor.engines.fingerprint`) with that
        of an engine that was started with the checkpoint.

        Args:
            config: the engine's own configuration but for `model` and the planted faults.
            weights: path of published weights (`proctor.transfer.published`) of that checkpoint; empty: the engine
                reads the files of `config.model` itself.

        Raises:
            SwapRefused: it cannot, and nothing has changed.
            Exception: any other: the engine is in an unknown state and has to be started anew.
        """

    def close(self) -> None:
        """Releases what the engine holds."""


class IterFeed:
    """A feed over a plain iterable: for tests and for running an engine bare, without a supervisor."""

    def __init__(self, requests: Iterator[Request]) -> None:
        self._requests = requests

    def take(self, room: int, *, wait: bool) -> list[Request]:  # noqa: ARG002 (an iterator never makes one wait)
        """The next `room` requests; empty at the end."""
        taken: list[Request] = []
        while len(taken) < room:
            request = next(self._requests, None)
            if request is None:
                break
            taken.append(request)
        return taken
