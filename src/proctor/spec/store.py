"""The resolved spec as it is stored with a run: complete, and without secrets."""

from __future__ import annotations

import re
from typing import Any

import yaml

from proctor.spec.run import RunSpec

MASK = "***"
_SECRET_KEY = re.compile(r"(?:^|[_-])(?:api[_-]?key|key|token|secret|password|passwd|authorization)$", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(?<=://)[^/@\s]+@")


def dump_spec(spec: RunSpec) -> str:
    """`spec` as YAML, every default written out, secrets masked."""
    return yaml.safe_dump(masked(spec.model_dump(mode="json")), sort_keys=False, allow_unicode=True)


def masked(value: Any, key: str = "") -> Any:
    """A copy of plain data in which values of secret-looking keys, and passwords inside URLs, are masked."""
    if isinstance(value, dict):
        return {k: masked(v, str(k)) for k, v in value.items()}
    if isinstance(value, list):
        return [masked(v, key) for v in value]
    if isinstance(value, str):
        return MASK if _SECRET_KEY.search(key) and value else _URL_PASSWORD.sub(f"{MASK}@", value)
    return value
