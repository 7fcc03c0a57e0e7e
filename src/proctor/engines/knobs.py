"""What can be turned at an engine: every engine declares its own knobs, for audits to turn one at a time."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from proctor.engines.base import EngineConfig

Value = bool | int | float | str | None


class Knob(msgspec.Struct, frozen=True, kw_only=True):
    """One thing about an engine, or about the traffic it gets, that may change its outputs and should not.

    Attributes:
        name: as in tables and verdicts, e.g. ``batch``, ``dtype``, ``VLLM_CPU_ATTN_SPLIT_KV``.
        what: what it is, in one line.
        place: where it is turned: ``config`` (a field of `EngineConfig`), ``option`` (an entry of its options),
            ``env`` (an environment variable of the engine's process) or ``traffic`` (what is sent, and how).
        baseline: its value in the baseline arm; None leaves it as it is.
        values: what it is turned to, one arm each.
        ordered: values are numbers, so a threshold can be searched between two of them.
        control: turning it must change outputs (another number format): an instrument that sees nothing then is blind.
    """

    name: str
    what: str
    place: Literal["config", "option", "env", "traffic"]
    baseline: Value = None
    values: tuple[Value, ...] = ()
    ordered: bool = False
    control: bool = False


def turned(config: EngineConfig, env: dict[str, str], knob: Knob, value: Value) -> tuple[EngineConfig, dict[str, str]]:
    """Configuration and environment of an engine with one knob at `value`; traffic knobs change nothing here."""
    if knob.place == "config":
        return replace(config, **{knob.name: value}), env
    if knob.place == "option":
        options: dict[str, Any] = {key: kept for key, kept in config.options.items() if key != knob.name}
        return replace(config, options=options if value is None else {**options, knob.name: value}), env
    if knob.place == "env":
        kept = {key: found for key, found in env.items() if key != knob.name}
        return config, kept if value is None else {**kept, knob.name: str(value)}
    return config, env
