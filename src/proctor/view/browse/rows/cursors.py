"""A place in the order of rows, as text that an address can hold."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, NamedTuple

from proctor.rows import UserError

_MOST_CHARACTERS = 4_000
_MOST = 2**63 - 1
_MOST_VALUE = 2**127 - 1

Key = str | int | float | bool | None


class Cursor(NamedTuple):
    """The key of a row in some order: its value in the sorted column, then what tells equal ones apart.

    Attributes:
        sort: the column; a cursor means nothing in another order.
        value: null for rows without one.
        part, place: where the record lies, because a damaged run may hold a key twice.
    """

    sort: str
    value: Key
    row_id: int
    checkpoint: str
    part: str
    place: int

    @property
    def ties(self) -> list[Any]:
        """What comes after the value."""
        return [self.row_id, self.checkpoint, self.part, self.place]

    def to_text(self) -> str:
        """Letters, digits, ``-`` and ``_``."""
        return base64.urlsafe_b64encode(json.dumps(list(self), ensure_ascii=False).encode()).decode("ascii").rstrip("=")

    @classmethod
    def from_text(cls, text: str, sort: str) -> Cursor:
        """What `to_text` gave for the order by `sort`.

        Raises:
            UserError: it is not such a text.
        """
        try:
            if len(text) > _MOST_CHARACTERS or not text.isascii():
                raise ValueError
            data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            found = cls(*json.loads(data))
            if not found._is_sound() or found.sort != sort:
                raise ValueError
        except (ValueError, TypeError, RecursionError, binascii.Error):
            raise UserError("this is no place in these rows", fix="begin at the first page") from None
        return found

    def _is_sound(self) -> bool:
        texts = (self.sort, self.checkpoint, self.part)
        numbers = (self.row_id, self.place)
        return (
            all(isinstance(text, str) and _whole(text) for text in texts)
            and all(type(number) is int and -_MOST <= number <= _MOST for number in numbers)
            and self._has_sound_value()
        )

    def _has_sound_value(self) -> bool:
        value = self.value
        if isinstance(value, str):
            return _whole(value)
        if type(value) is int:
            return abs(value) <= _MOST_VALUE
        return value is None or isinstance(value, bool | float)


def _whole(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
