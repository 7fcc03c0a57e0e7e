"""A place in the order of rows of several sides, as text that an address can hold."""

from __future__ import annotations

import base64
import binascii
import json
from typing import NamedTuple

from proctor.rows import UserError

_MOST_CHARACTERS = 4_000


class Place(NamedTuple):
    """Where a row stands in the order of the board."""

    rank: int
    size: float
    row: int
    key: str

    def to_text(self) -> str:
        """Letters, digits, ``-`` and ``_``."""
        return base64.urlsafe_b64encode(json.dumps(list(self)).encode()).decode("ascii").rstrip("=")

    @classmethod
    def from_text(cls, text: str) -> Place:
        """What `to_text` gave.

        Raises:
            UserError: it is not such a text.
        """
        try:
            if len(text) > _MOST_CHARACTERS or not text.isascii():
                raise ValueError
            found = cls(*json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)))
            numbers = type(found.rank) is int and type(found.row) is int and isinstance(found.size, int | float)
            if not numbers or not isinstance(found.key, str) or max(abs(found.rank), abs(found.row)) >= 2**63:
                raise ValueError
            found.key.encode()
        except (ValueError, TypeError, RecursionError, binascii.Error):
            raise UserError("this is no place in these rows", fix="begin at the first page") from None
        return found
