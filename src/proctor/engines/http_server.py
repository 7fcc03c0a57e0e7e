"""Talks to an OpenAI-compatible server over HTTP: one call at a time and thread, with patience for a busy server."""

from __future__ import annotations

import email.utils
import json
import random
import threading
import time
import urllib.request
from collections.abc import Callable
from http.client import HTTPException, HTTPMessage, HTTPResponse
from typing import IO, Any, TypeVar
from urllib.error import HTTPError

from proctor.engines.refusal import Refused, one_line, rejected
from proctor.rows import ErrorKind, UserError

FIRST_WAIT = 0.5
"""Seconds before the second try; doubled for every further one."""
LONGEST_WAIT = 30.0
_ROW_AT_FAULT = frozenset({400, 413, 422})
_WORTH_A_RETRY = frozenset({408, 425, 429})

T = TypeVar("T")


class Busy(Exception):  # noqa: N818 (a state of the server)
    """No usable reply this time; another try may bring one. `wait` is what the server asks for, in seconds."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


class NotThere(Exception):  # noqa: N818 (a state of the server)
    """The server has no such address (404 and the like)."""


class Server:
    """An HTTP server with JSON in and out. Safe to use from several threads.

    Args:
        base_url: address that the paths are added to.
        key: sent as bearer token; never part of a message.
        timeout: longest silence of the server, in seconds; also the longest ``Retry-After`` that is followed.
        max_retries: further tries after the first one.
        stopped: ends every wait between tries.
    """

    def __init__(
        self, base_url: str, key: str | None, *, timeout: float, max_retries: int, stopped: threading.Event
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._key = key
        self._timeout, self._tries, self._stopped = timeout, max_retries + 1, stopped
        self._opener = urllib.request.build_opener(NoRedirects)

    def get(self, path: str) -> bytes:
        """One GET without retries.

        Raises:
            Busy: the server cannot be reached or is not well.
            NotThere: it has nothing at `path`.
            UserError: it does not let us in.
        """
        return self._send(path, None)

    def post(self, path: str, body: Any, read: Callable[[bytes], T]) -> T:
        """POSTs `body` as JSON until `read` can make something of the reply.

        Args:
            path: below the base address.
            body: what is sent.
            read: makes the result of a reply; a ValueError means that the reply makes no sense.

        Raises:
            Refused: ``infer.rejected`` if the server faults the request, ``infer.unreachable`` after the last try.
            UserError: the server does not let us in, or has nothing there: no request will ever succeed.
        """
        data = json.dumps(body).encode()
        reason = "stopped"
        for attempt in range(self._tries):
            try:
                return read(self._send(path, data))
            except Busy as busy:
                reason, wait = str(busy), busy.wait
            except NotThere as error:
                raise UserError(str(error), where="engine", fix="check base_url and the model's name") from error
            except ValueError as error:
                reason, wait = one_line(error), None
            if attempt + 1 == self._tries or self._stopped.wait(self._pause(attempt, wait)):
                break
        raise Refused(ErrorKind.INFER_UNREACHABLE, f"no usable reply in {self._tries} tries; the last: {reason}")

    def _pause(self, attempt: int, asked: float | None) -> float:
        if asked is not None:
            return min(asked, self._timeout)
        # Spread out, so that requests that failed together do not come back together.
        return float(min(FIRST_WAIT * 2**attempt, LONGEST_WAIT) * random.uniform(0.5, 1))  # noqa: S311 (no secret)

    def _send(self, path: str, data: bytes | None) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(f"{self._base_url}{path}", data, headers)  # noqa: S310 (check() allows http only)
        try:
            with self._opener.open(request, timeout=self._timeout) as reply:
                return self._whole(reply)
        except HTTPError as error:
            with error:
                raise self._verdict(path, error) from None  # the original would show the request's headers
        except (OSError, HTTPException) as error:
            raise Busy(one_line(error)) from error

    def _whole(self, reply: HTTPResponse) -> bytes:
        """The body of `reply`, all of it in time: a socket's own limit begins anew with every byte."""
        give_up = time.monotonic() + self._timeout
        content = bytearray()
        while chunk := reply.read1():
            content += chunk
            if time.monotonic() > give_up:
                raise Busy(f"the reply was not whole within {self._timeout:g} s")
        return bytes(content)

    def _verdict(self, path: str, error: HTTPError) -> Exception:
        said = f"{path}: HTTP {error.code} {self._told(error)}"
        if error.code in _ROW_AT_FAULT:
            return rejected(said)
        if error.code in _WORTH_A_RETRY or error.code >= 500:
            return Busy(said, _retry_after(error.headers.get("Retry-After")))
        if error.code in (404, 405):
            return NotThere(said)
        return UserError(said, where="engine", fix="check base_url, the model's name and the key in api_key_env")

    def _told(self, error: HTTPError) -> str:
        text = " ".join(error.read(2000).decode("utf-8", "replace").split())
        text = text.replace(self._key, "(key)") if self._key else text
        return text[:200] or error.reason


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it would carry the key to another host."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        """Nothing to follow; the redirect then counts as an error."""


def _retry_after(value: str | None) -> float | None:
    """Seconds that a ``Retry-After`` header asks for: a number, or a date."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except ValueError:
            return None
    return max(seconds, 0.0)
