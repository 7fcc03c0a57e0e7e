"""The base of every part of a spec: strict types, no unknown keys, documented attributes."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MOST = 2**31 - 1
"""Largest count that a spec may hold: what libraries below take as a 32-bit number."""
MOST_ID = 2**63 - 1
"""Largest row id, row count or seed."""
LONGEST = 1e9
"""Longest time in seconds (30 years); "no limit" is spelled so."""

PathText = Annotated[str, Field(min_length=1, pattern=r"^[^\x00]+$")]
"""Text that can be a path."""


class SpecModel(BaseModel):
    """A part of a spec. Immutable; values are never coerced (a quoted ``"False"`` is not a boolean), numbers finite."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


def without_secrets(url: str) -> str:
    """A URL as it may stand in logs.

    Raises:
        ValueError: it holds credentials, or a query, which may be a signature.
    """
    if "@" in url or "?" in url:
        raise ValueError("a URL with credentials or a query: leave them out, credentials come from the environment")
    return url
