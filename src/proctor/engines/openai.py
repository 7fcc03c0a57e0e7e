"""Asks any OpenAI-compatible server, a thread for each open request (standard library only)."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator

import msgspec

from proctor.engines.base import EngineConfig, Feed, Reporter, SwapRefused
from proctor.engines.capabilities import OPENAI
from proctor.engines.http_server import NotThere, Server
from proctor.engines.openai_wire import completion_body, parse_completion, response_of
from proctor.engines.options import check_options
from proctor.engines.refusal import Refused, one_line
from proctor.rows import ErrorKind, Failure, Request, Response, UserError

POLL_SECONDS = 0.02
"""How long an engine with room for more waits for a reply before it looks for further requests."""


class Options(msgspec.Struct, forbid_unknown_fields=True):
    """The engine's options; the fields are those of `proctor.spec.engine.OpenAIEngineSpec`."""

    base_url: str
    api_key_env: str | None = None
    timeout_seconds: float = 120.0
    max_retries: int = 5
    token_ids: bool = False


class _Outcome(msgspec.Struct):
    """What a thread comes back with: a row's response, or an error that ends the engine."""

    response: Response | None = None
    tokens: int = 0
    error: Exception | None = None


class OpenAIEngine:
    """Chat completions with images as data URIs; `batch_size` is the number of open requests.

    Rate limits, server errors, broken connections and replies that make no sense are tried again, with pauses that
    the server may set by ``Retry-After``; a row that got no reply at all is left to the next sweep.
    """

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._server: Server | None = None
        self._stopped = threading.Event()

    def check(self) -> None:
        """Looks at the options and for the key's environment variable; asks nothing of the network.

        Raises:
            UserError: what is wrong.
        """
        check_options(self._config.options, Options.__struct_fields__, engine="the openai engine")
        options = self._options()
        if not options.base_url.startswith(("http://", "https://")):
            raise UserError(f"{options.base_url!r} is not a web address", where="engine.base_url")
        if not self._config.model:
            raise UserError("no model", where="engine.checkpoints", fix="give the model's name on the server")
        _key(options)

    def load(self) -> None:
        """Asks the server for its models: a wrong key shows here, not on the first row.

        Raises:
            UserError: the server does not let us in.
            Busy: it cannot be reached or is not well.
        """
        options = self._options()
        self._server = Server(
            options.base_url,
            _key(options),
            timeout=options.timeout_seconds,
            max_retries=options.max_retries,
            stopped=self._stopped,
        )
        try:
            self._server.get("/models")
        except (NotThere, Refused):
            return  # not every server lists its models

    def stream(self, feed: Feed, report: Reporter) -> Iterator[Response]:
        """Answers every request of `feed`; takes a new one whenever a reply has come."""
        self._stopped.clear()
        outcomes: queue.SimpleQueue[_Outcome] = queue.SimpleQueue()
        waiting = 0
        try:
            while True:
                room = self._config.batch_size - waiting
                requests = feed.take(room, wait=waiting == 0) if room > 0 else []
                for request in requests:
                    threading.Thread(target=self._ask, args=(request, outcomes), daemon=True).start()
                waiting += len(requests)
                if waiting == 0:
                    return
                done = _done(outcomes)
                # Each open request has a deadline of its own: as long as this loop runs, nothing stands still.
                report(sum(outcome.tokens for outcome in done))
                waiting -= len(done)
                for outcome in done:
                    if outcome.error is not None:
                        raise outcome.error
                    if outcome.response is not None:
                        yield outcome.response
        finally:
            self._stopped.set()

    def swap(self, config: EngineConfig, weights: str = "") -> None:  # noqa: ARG002 (the contract)
        """Refused: the model lives in somebody else's process.

        Raises:
            SwapRefused: always.
        """
        raise SwapRefused(OPENAI.why_no_swap)

    def close(self) -> None:
        """Ends the waits of open requests; their threads end with them or with the process."""
        self._stopped.set()
        self._server = None

    def _options(self) -> Options:
        try:
            return msgspec.convert(self._config.options, Options)
        except msgspec.ValidationError as error:
            raise UserError(str(error), where="engine") from error

    def _ask(self, request: Request, outcomes: queue.SimpleQueue[_Outcome]) -> None:
        try:
            outcomes.put(self._answer(request))
        except Refused as refusal:
            outcomes.put(_Outcome(refusal.response(request.id)))
        except UserError as error:
            outcomes.put(_Outcome(error=error))
        except Exception as error:
            failure = Failure(ErrorKind.INFER_FAILED, one_line(error))
            outcomes.put(_Outcome(Response.failed(request.id, failure)))

    def _answer(self, request: Request) -> _Outcome:
        if self._server is None:
            raise UserError("the engine is closed", where="engine")
        body = completion_body(request, self._config.model, token_ids=self._options().token_ids)
        completion = self._server.post("/chat/completions", body, parse_completion)
        return _Outcome(response_of(request, completion), completion.tokens)


def _done(outcomes: queue.SimpleQueue[_Outcome]) -> list[_Outcome]:
    """The next outcome and all that are there already; none if there is none for a moment."""
    done: list[_Outcome] = []
    try:
        done.append(outcomes.get(timeout=POLL_SECONDS))
        while True:
            done.append(outcomes.get_nowait())
    except queue.Empty:
        return done


def _key(options: Options) -> str | None:
    if options.api_key_env is None:
        return None
    key = os.environ.get(options.api_key_env)
    if not key:
        raise UserError(
            f"the environment variable {options.api_key_env} is not set",
            where="engine.api_key_env",
            fix="export it with the server's key",
        )
    return key
