"""What can be turned at an engine: every engine declares its own knobs, for audits to turn one at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from proctor.engines.base import EngineConfig
from proctor.engines.surroundings import Site, look

Value = bool | int | float | str | None
HOMES = {
    "scripted": "proctor.engines.scripted_knobs",
    "transformers": "proctor.engines.transformers_knobs",
    "vllm": "proctor.engines.vllm_knobs",
}
"""Modules that declare an engine's knobs; an engine without one has none beyond the traffic."""


class Knob(msgspec.Struct, frozen=True, kw_only=True):
    """One thing about an engine, or about the traffic it gets, that may change its outputs and should not.

    Attributes:
        name: as in tables and verdicts, e.g. ``batch``, ``dtype``, ``VLLM_CPU_ATTN_SPLIT_KV``.
        what: what it is, in one line.
        place: where it is turned: ``config`` (a field of `EngineConfig`), ``option`` (an entry of its options),
            ``env`` (an environment variable of the engine's process), ``process`` (nothing is turned, but the arm gets
            a process of its own) or ``traffic`` (what is sent, and how).
        baseline: its value in the baseline arm; None leaves it as it is.
        values: what it is turned to, one arm each.
        ordered: values are numbers, so a threshold can be searched between two of them.
        listed: of an ordered one: there is nothing between `values` and `baseline` (1, 2, 4 devices).
        control: turning it must change outputs (another number format): an instrument that sees nothing then is blind.
        key: where it is turned, if not under its name; in options a dot goes into a mapping
            (``compilation_config.mode``).
        untried: values that exist and are not in `values`, each with the reason; an empty value stands for the knob as
            a whole.
    """

    name: str
    what: str
    place: Literal["config", "option", "env", "process", "traffic"]
    baseline: Value = None
    values: tuple[Value, ...] = ()
    ordered: bool = False
    listed: bool = False
    control: bool = False
    key: str = ""
    untried: tuple[tuple[str, str], ...] = ()


def turned(config: EngineConfig, env: dict[str, str], knob: Knob, value: Value) -> tuple[EngineConfig, dict[str, str]]:
    """Configuration and environment of an engine with one knob at `value`; None takes the setting away.

    Knobs of the traffic and of the process change nothing here. A switch in the environment is written 0 or 1.
    """
    key = knob.key or knob.name
    if knob.place == "config":
        return replace(config, **{key: value}), env
    if knob.place == "option":
        return replace(config, options=_with(config.options, key.split("."), value)), env
    if knob.place == "env":
        kept = {name: found for name, found in env.items() if name != key}
        text = str(int(value)) if isinstance(value, bool) else str(value)
        return config, kept if value is None else {**kept, key: text}
    return config, env


def knobs_of(config: EngineConfig, env: Mapping[str, str], site: Site | None = None) -> tuple[Knob, ...]:
    """Every knob of this engine: what it can be turned to here, and what is known and not tried, with the reason.

    Those of the traffic, which all engines share, are not among them.

    Args:
        config: the engine's configuration; knobs that it sets are turned away from that setting.
        env: environment variables that the engine's process gets on top of this process's.
        site: what is installed where the engine runs, from `proctor.engines.surroundings.look`; looked up if not given.
    """
    home = HOMES.get(config.kind)
    if home is None:
        return ()
    declared: tuple[Knob, ...] = import_module(home).knobs(config, env, site or look(config.kind))
    return declared


def _with(options: Mapping[str, Any], path: Sequence[str], value: Value) -> dict[str, Any]:
    first, rest = path[0], path[1:]
    kept = {key: found for key, found in options.items() if key != first}
    if not rest:
        return kept if value is None else {**kept, first: value}
    inner = options.get(first)
    below = _with(inner if isinstance(inner, Mapping) else {}, rest, value)
    return {**kept, first: below} if below else kept
