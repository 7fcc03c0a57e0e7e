"""How a value of the source becomes text: in prompts, and as the target that an answer is compared with."""

from __future__ import annotations

import json
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any


def value_text(value: Any) -> str:
    """The text of one source value.

    ======================  ==========================================================
    text                    as it is
    true, false             ``true``, ``false``
    whole number            its digits; a float without a fraction, too: ``3.0`` is ``3``, because columns of whole
                            numbers with gaps reach us as floats
    other number            the shortest text that gives the same number again, e.g. ``0.1``
    date, time              ISO 8601
    list, object            compact JSON
    ======================  ==========================================================

    Raises:
        ValueError: the value is null, or has no text (e.g. bytes).
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(float(value))
    if isinstance(value, int | Decimal):
        return str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if hasattr(value, "item"):  # a numpy number
        return value_text(value.item())
    raise ValueError("is null" if value is None else f"holds {type(value).__name__}, which has no text")
