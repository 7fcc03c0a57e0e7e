"""The resolved spec as it is stored with a run: complete, and without secrets."""

from __future__ import annotations

import re
from typing import Any

import yaml

from proctor.spec.run import RunSpec

MASK = "***"
_SECRET_WORDS = frozenset(
    {"secret", "password", "passwd", "pwd", "passphrase", "credential", "credentials", "authorization", "bearer"}
)
_SECRET_LAST_WORDS = frozenset({"key", "keys", "apikey", "token", "tokens", "auth", "pat", "cookie"})
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_URL_PASSWORD = re.compile(r"(?<=://)[^/\s]*@")
_URL_PARAMETER = re.compile(r"(?<=[?&])([^=&#\s]+)=([^&#\s]+)")


def dump_spec(spec: RunSpec) -> str:
    """`spec` as YAML, every default written out, secrets masked."""
    return yaml.safe_dump(masked(spec.model_dump(mode="json")), sort_keys=False, allow_unicode=True)


def masked(value: Any, *, secret: bool = False) -> Any:
    """A copy of plain data in which the values of secret-looking keys, and secrets inside URLs, are masked."""
    if isinstance(value, dict):
        return {key: masked(inner, secret=secret or is_secret(str(key))) for key, inner in value.items()}
    if isinstance(value, list):
        return [masked(inner, secret=secret) for inner in value]
    if isinstance(value, str):
        return MASK if secret and value else _URL_PARAMETER.sub(_parameter, _URL_PASSWORD.sub(f"{MASK}@", value))
    return value


def is_secret(name: str) -> bool:
    """Whether `name` (``HF_TOKEN``, ``clientSecret``, ``api-key-2``) is that of something nobody else should read."""
    words = [word.lower() for word in _WORD.findall(name)]
    return bool(words) and (words[-1] in _SECRET_LAST_WORDS or not _SECRET_WORDS.isdisjoint(words))


def _parameter(found: re.Match[str]) -> str:
    return f"{found[1]}={MASK}" if "://" in found.string and is_secret(found[1]) else found[0]
