"""Text of strangers: models answer it, data hold it, exceptions carry it."""

from __future__ import annotations

import unicodedata

_MOST_CHARACTERS = 300
_UNSEEN = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})


def is_blank(text: str) -> bool:
    """Whether there is nothing to see: white space, control characters, invisible ones such as U+200B, or no text."""
    return all(unicodedata.category(character) in _UNSEEN for character in text)


def line_of(text: str) -> str:
    """`text` in one line that can be stored: not too long, and without halves of characters."""
    line = " ".join(text.split()).encode(errors="backslashreplace").decode()
    return line if len(line) <= _MOST_CHARACTERS else f"{line[: _MOST_CHARACTERS - 1]}…"


def told(error: BaseException) -> str:
    """Type and text of an exception, whoever raised it, as `line_of` gives it."""
    try:
        text = str(error)
    except Exception:  # an exception of somebody else's code may not even have a text
        text = ""
    return line_of(f"{type(error).__name__}: {text}" if text.strip() else type(error).__name__)
