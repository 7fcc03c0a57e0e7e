"""Where an ordered knob begins to have its effect, by bisection, and whether that is a known switch point."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from typing import Any

from proctor.audit.model import Threshold
from proctor.engines.knobs import Value


def bisected(
    tried: Mapping[int, bool], has_effect: Callable[[int], bool | None], *, most: int = 40
) -> tuple[int, int] | None:
    """The largest value without the effect and the smallest with it, next to each other if the steps allow.

    Args:
        tried: values that were tried, with whether they had the effect.
        has_effect: tries one more; None where it may not any more.
        most: steps.

    Returns:
        None where there is no such point: no effect at all, or one that comes and goes.
    """
    with_effect = [value for value, found in tried.items() if found]
    without = [value for value, found in tried.items() if not found]
    if not with_effect or not without or min(with_effect) < max(without):
        return None
    below, above = max(without), min(with_effect)
    for _ in range(most):
        if above - below <= 1:
            break
        middle = (below + above) // 2
        found = has_effect(middle)
        if found is None:
            break
        below, above = (below, middle) if found else (middle, above)
    return below, above


def threshold(knob: str, below: Value, above: Value, tokens: tuple[int, int] | None = None) -> Threshold:
    """The threshold, with the known switch points that lie in it.

    Args:
        knob: which.
        below, above: the largest value without and the smallest with the effect.
        tokens: lengths of the longest prompt at both, where the engine says.
    """
    fits = [entry for entry in known() if entry["knob"] == knob and _lies_in(entry, below, above, tokens)]
    told = "; ".join(f"{entry['what']} ({entry['source']})" for entry in fits)
    return Threshold(knob=knob, below=below, above=above, tokens=tokens, known_as=told)


@cache
def known() -> list[dict[str, Any]]:
    """Known switch points; see ``known.toml``."""
    text = resources.files("proctor.audit").joinpath("known.toml").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = tomllib.loads(text)["switch"]
    return found


def _lies_in(entry: Mapping[str, Any], below: Value, above: Value, tokens: tuple[int, int] | None) -> bool:
    if entry.get("tokens"):
        return tokens is not None and tokens[0] < entry["above"] <= tokens[1]
    return isinstance(below, int) and isinstance(above, int) and below < entry["above"] <= above
