"""One source row, ready to be asked about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Sample:
    """One source row as a task sees it.

    Attributes:
        row_id: position in source order.
        sample_id: the user's own key, if there is one.
        images: encoded images, in order.
        fields: the row's other columns as Python values (JSON columns already decoded).
    """

    row_id: int
    sample_id: str | None
    images: tuple[bytes, ...]
    fields: Mapping[str, Any]
