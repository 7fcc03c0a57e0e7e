"""What an error of obstore says of a reply, without address and body, which may hold what nobody else should read."""

from __future__ import annotations

import re

from proctor.storage.connect import first_line

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_BROKEN = re.compile(r"HttpError \{\s*kind: (\w+)")
_NO_CONNECTION = re.compile(r"HttpError \{\s*kind: Connect\b")
_SERVER = re.compile(r"\buri: Some\(\s*(\w+://[^/?\s@]+)")
_SYSTEM_SAYS = re.compile(r'message: "([^"]{1,120})"|lookup address information: ([^"]{1,80})"')
_TRIES = re.compile(r", after \d+ tries$")
_KEY_SERVICES = ("169.254.169.254", "169.254.170.2", "metadata.google.internal")
"""Where keys come from on the providers' own machines: asked when there are none in the environment."""
NO_CREDENTIALS = "no credentials; set them in the environment, or storage.anonymous for a public bucket"
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


def lacks_credentials(error: Exception) -> bool:
    """Whether no key was found, so that the provider's service of keys was asked, in vain."""
    text = str(error)
    return any(service in text for service in _KEY_SERVICES)


def explained(error: Exception) -> str:
    """What went wrong in one line: as `first_line`, with the server's name where it was not reached, and with a hint
    where credentials are lacking or not good enough."""
    if lacks_credentials(error):
        return NO_CREDENTIALS
    text, line = str(error), first_line(error)
    if _NO_CONNECTION.search(text):
        server, said = _SERVER.search(text), _SYSTEM_SAYS.search(text)
        reason = f" ({next(filter(None, said.groups()))})" if said else ""
        tries = _TRIES.search(line)
        where = f"{server[1] if server else 'the server'}{reason}{tries[0] if tries else ''}"
        return f"no connection to {where}; see storage.endpoint and AWS_ENDPOINT_URL"
    return f"{line}; check the credentials and what they may do" if status_of(error) in (401, 403) else line


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
