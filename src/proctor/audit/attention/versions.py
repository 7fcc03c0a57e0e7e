"""Which releases of vLLM had cascade attention, and whether it was on: from the sources of the releases named here."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from proctor.rows import UserError

State = Literal["on", "off", "absent"]
Version = tuple[int, int, int]

READ: tuple[tuple[Version, State], ...] = (
    ((0, 16, 0), "on"),
    ((0, 17, 1), "on"),
    ((0, 18, 1), "off"),
    ((0, 28, 0), "off"),
    ((0, 31, 0), "off"),
    ((0, 32, 0), "absent"),
    ((0, 33, 0), "absent"),
)
"""Releases whose sources were read: the default of `disable_cascade_attn`, or that the code is not there any more.
Sources: vllm/config/model.py; vllm pull request 36318 (2026-03-07), which turned it off by default."""
_WORDS = {"on": "on by default", "off": "off by default", "absent": "removed"}


class Default(NamedTuple):
    """What a release does unless it is told otherwise.

    Attributes:
        states: what it can be: one, or several where the release lies between two that differ or before all others.
            A release that has it ``off`` can be told to use it (``disable_cascade_attn=False``).
        why: in words, with the releases that it is known from.
    """

    states: tuple[State, ...]
    why: str


def cascade_default(version: str) -> Default:
    """What that release of vLLM does by default.

    Args:
        version: ``0.17.1``; what follows the third number does not matter.

    Raises:
        UserError: it is no version.
    """
    asked = parsed(version)
    before = [entry for entry in READ if entry[0] <= asked]
    after = [entry for entry in READ if entry[0] >= asked]
    if not before:
        return Default(("on", "off", "absent"), f"not known before {_text(READ[0][0])}, the oldest release read")
    (known, state), words = before[-1], f"{_WORDS[before[-1][1]]} in {_text(before[-1][0])}"
    if known == asked:
        return Default((state,), words)
    if not after:
        return Default((state,), f"{words}, the newest release read")
    following, then = after[0]
    if then == state:
        return Default((state,), f"{words} and in {_text(following)}")
    return Default((state, then), f"{words}, {_WORDS[then]} in {_text(following)}, not read between them")


def parsed(version: str) -> Version:
    """``0.17.1`` as numbers; missing ones are 0.

    Raises:
        UserError: it is no version.
    """
    found = re.match(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?", version.strip())
    if found is None:
        raise UserError(f"{version!r} is no version", where="vLLM", fix="write it like 0.17.1")
    major, minor, patch = (int(part or 0) for part in found.groups())
    return major, minor, patch


def _text(version: Version) -> str:
    return ".".join(map(str, version))
