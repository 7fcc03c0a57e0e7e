"""Where an ordered knob begins to have its effect, by bisection, and whether that is a known switch point."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib import resources
from typing import Any

from msgspec.structs import replace

from proctor.audit.model import Threshold
from proctor.engines.knobs import Value


def bisected(
    tried: Mapping[int, bool],
    has_effect: Callable[[int], bool | None],
    *,
    listed: Collection[int] | None = None,
    most: int = 40,
) -> tuple[int, int] | None:
    """The largest value without the effect and the smallest with it, next to each other if the steps allow.

    Args:
        tried: values that were tried, with whether they had the effect.
        has_effect: tries one more; None where it may not any more.
        listed: the values that there are, where those in between make no sense.
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
        between = range(below + 1, above) if listed is None else sorted(n for n in listed if below < n < above)
        if not between:
            break
        middle = between[(len(between) - 1) // 2]
        found = has_effect(middle)
        if found is None:
            break
        below, above = (below, middle) if found else (middle, above)
    return below, above


def threshold(
    knob: str,
    below: Value,
    above: Value,
    tokens: tuple[int, int] | None = None,
    together: tuple[int, int] | None = None,
) -> Threshold:
    """The threshold, with the known switch points that lie in it.

    Args:
        knob: which.
        below, above: the largest value without and the smallest with the effect.
        tokens: lengths of the longest prompt at both, where the engine says.
        together: lengths at both of all prompts that are worked on together, where the engine says.
    """
    found = Threshold(knob=knob, below=below, above=above, tokens=tokens, together=together)
    fits = [entry for entry in known() if _lies_in(entry, found)]
    told = "; ".join(f"{entry['what']} ({entry['source']})" for entry in fits)
    return replace(found, known_as=told)


def lengths_told(found: Threshold) -> str:
    """The lengths of prompts at a threshold, in brackets; empty where they are not known."""
    spans = ((found.tokens, " a prompt"), (found.together, " together"))
    told = [f"{span[0]:,} against {span[1]:,} tokens{what}" for span, what in spans if span]
    return f" ({', '.join(told)})" if told else ""


@cache
def known() -> list[dict[str, Any]]:
    """Known switch points; see ``known.toml``."""
    text = resources.files("proctor.audit").joinpath("known.toml").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = tomllib.loads(text)["switch"]
    return found


def _lies_in(entry: Mapping[str, Any], found: Threshold) -> bool:
    counted: tuple[Any, Any] | None = {
        "prompt": found.tokens if found.knob == "prefix" else None,
        "together": found.together,
        found.knob: (found.below, found.above),
    }.get(entry["of"])
    if counted is None or not all(isinstance(end, int) for end in counted):
        return False
    return bool(counted[0] < entry["above"] <= counted[1])
