"""Files of this package that pages refer to."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import xxhash

from proctor.view.pages import TEMPLATES


@cache
def assets(folder: Path) -> dict[str, str]:
    """By name: ``style.css``, which is all sheets one after another, ``icon.svg`` and the scripts.

    Args:
        folder: of the templates.
    """
    sheets = [TEMPLATES / "style.css", *sorted(TEMPLATES.glob("*.css")), *sorted(folder.glob("*.css"))]
    style = "".join(sheet.read_text("utf-8") for sheet in dict.fromkeys(sheets))
    files = [folder / "icon.svg", *sorted((folder.parent / "static").glob("*.js"))]
    return {"style.css": style, **{file.name: file.read_text("utf-8") for file in files}}


def version_of(text: str) -> str:
    """What tells a text from an earlier one of the same name."""
    return xxhash.xxh3_64_hexdigest(text.encode())


def address_of(folder: Path, name: str) -> str:
    """Where an asset is, as a page refers to it."""
    return f"/{name}?v={version_of(assets(folder)[name])}"
