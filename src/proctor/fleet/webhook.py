"""One POST to a webhook, within its time whatever the server does. Nothing that is said here holds the URL."""

from __future__ import annotations

import os
import urllib.request
from email.message import Message
from http.client import HTTPException
from typing import NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

import msgspec

from proctor.engines.http_server import NoRedirects
from proctor.fleet.limited import Limited
from proctor.rows import UserError

_MOST_LEFT = 4
"""Tries that may hang at the same time, each in its thread, before the next one is not even begun."""
_LATER = frozenset({408, 425, 429})


class Reply(NamedTuple):
    """What became of a try.

    Attributes:
        ok: the server took it.
        trouble: what went wrong, without the URL.
        again: another try may help.
        wait: seconds that the server asks for before the next try.
    """

    ok: bool
    trouble: str = ""
    again: bool = True
    wait: float | None = None


class Webhook:
    """The webhook whose URL is in the environment variable `name`.

    Args:
        name: of the variable.
        seconds: most time for one try.

    Raises:
        UserError: there is no such variable, or it holds no http(s) URL.
    """

    def __init__(self, name: str, seconds: float) -> None:
        self._url, self._seconds = _url_of(name), seconds
        # A redirected POST would become a GET, and be lost without a word.
        self._opener = urllib.request.build_opener(NoRedirects)
        self._limited = Limited("proctor-notify-post", _MOST_LEFT)

    def post(self, text: str, seconds: float | None = None) -> Reply:
        """Sends ``{"text": text}``.

        Args:
            text: the message.
            seconds: most time for this try, if that is less than the usual one.
        """
        limit = self._seconds if seconds is None else min(self._seconds, seconds)
        try:
            return self._limited.call(lambda: self._send(text, limit), limit)
        except TimeoutError as error:
            return Reply(ok=False, trouble=str(error))

    def _send(self, text: str, limit: float) -> Reply:
        body, headers = msgspec.json.encode({"text": text}), {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url, body, headers)  # noqa: S310 (_url_of lets http only pass)
        try:
            with self._opener.open(request, timeout=limit):
                return Reply(ok=True)  # the status says it; what else comes is not waited for
        except HTTPError as error:
            with error:
                again = error.code in _LATER or error.code >= 500
                return Reply(ok=False, trouble=f"HTTP {error.code}", again=again, wait=_seconds(error.headers))
        except (OSError, HTTPException, ValueError) as error:
            return Reply(ok=False, trouble=_without_url(error))


def _url_of(name: str) -> str:
    url, where = os.environ.get(name, "").strip(), "notify.webhook_env"
    if not url:
        raise UserError(f"the environment variable {name} is not set", where=where, fix=f"export {name}=https://...")
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname is not None and parts.port != 0
    except ValueError:
        known = False
    if not known or not url.isascii() or not url.isprintable() or " " in url:
        raise UserError(f"what is in {name} is no URL that begins with https:// or http://", where=where)
    return url


def _seconds(headers: Message[str, str]) -> float | None:
    """What a ``Retry-After`` asks for; a date is not looked at, Slack sends seconds."""
    text = headers.get("Retry-After", "")
    return float(text) if text.isdigit() and len(text) < 10 else None


def _without_url(error: Exception) -> str:
    """The kind of an error; its own text only where the system wrote it, since any other may hold the URL."""
    reason = error.reason if isinstance(error, URLError) and isinstance(error.reason, Exception) else error
    if isinstance(reason, TimeoutError):
        return "no reply in time"
    text = reason.strerror if isinstance(reason, OSError) and isinstance(reason.errno, int) else None
    return f"{type(reason).__name__}: {text}" if text else type(reason).__name__
