"""What an error of obstore says of a reply, without address and body, which may hold what nobody else should read."""

from __future__ import annotations

import re

from proctor.storage.connect import first_line

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_BROKEN = re.compile(r"HttpError \{\s*kind: (\w+)")
_QUERY = re.compile(r"\?\S*")
_BROKEN_WORDS = {
    "Timeout": "the server went silent",
    "Interrupted": "the connection was cut",
    "Connect": "no connection to the server",
}


def status_of(error: Exception) -> int | None:
    """The HTTP status, if there was a reply."""
    found = _STATUS.search(str(error))
    return int(found[1]) if found else None


def is_broken(error: Exception) -> bool:
    """Whether the request or its reply broke off."""
    return _BROKEN.search(str(error)) is not None


def what_happened(error: Exception) -> str:
    """A few words."""
    text = str(error)
    status, code, broken = status_of(error), _CODE.search(text), _BROKEN.search(text)
    if status is not None:
        return f"HTTP {status} {code[1]}" if code else f"HTTP {status}"
    if broken is not None:
        return _BROKEN_WORDS.get(broken[1], f"the request failed: {broken[1]}")
    if "redirect without LOCATION" in text:
        return "redirected to nowhere: the region is probably another one (storage.region)"
    return _QUERY.sub("", first_line(error))[:200]
