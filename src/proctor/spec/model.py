"""The base of every part of a spec: strict types, no unknown keys, documented attributes."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class SpecModel(BaseModel):
    """A part of a spec. Immutable; values are never coerced (a quoted ``"False"`` is not a boolean)."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)
