"""Files that appear whole or not at all."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from proctor.rows import UserError


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Lets `write` make a file beside `path` under another name, syncs it to disk, and then names it `path`.

    The name under way starts with a dot and lacks the suffix, so that no reader of the directory takes it for data.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.parent / f".{path.stem}.{uuid.uuid4().hex}.draft"
    try:
        write(draft)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes a text file whole or not at all."""
    write_whole(path, lambda draft: _put(draft, text))


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file whole or not at all. Numbers that JSON does not know (NaN, infinity) are null."""
    write_text(path, msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def read_json(path: Path) -> Any:
    """The content of a JSON file, None where there is none.

    Raises:
        UserError: the file is not JSON (any more).
    """
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise UserError("not JSON: somebody or something has damaged it", where=str(path)) from error


def _put(draft: Path, text: str) -> None:
    draft.write_text(text, encoding="utf-8")
