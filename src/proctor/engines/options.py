"""Checks an engine's `options:` by name, before anything slow happens."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches

from proctor.rows import UserError

WHERE = "engine.options"


def check_options(
    options: Mapping[str, object], known: Collection[str], *, engine: str, reserved: Mapping[str, str] | None = None
) -> None:
    """Refuses options that the engine does not know, and those that have a key of their own in the spec.

    Args:
        options: what the user wrote.
        known: every name the engine takes.
        engine: the engine's name with its version, for the message.
        reserved: names that another key sets, with that key.

    Raises:
        UserError: names the wrong option and the nearest right one.
    """
    for name in options:
        own_key = (reserved or {}).get(name)
        if own_key is not None:
            raise UserError(f"`{name}` cannot be set here", where=WHERE, fix=f"set {own_key} instead")
        if name not in known:
            raise UserError(f"{engine} has no option `{name}`", where=WHERE, fix=_nearest(name, known))


def _nearest(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    if near:
        return f"did you mean `{near[0]}`?"
    shown = sorted(known)
    return "it takes " + ", ".join(shown) if len(shown) <= 12 else f"it takes {len(shown)} options, none of them near"
