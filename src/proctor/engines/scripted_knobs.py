"""What can be turned at the scripted engine: its number format, and the knobs that are planted in it."""

from __future__ import annotations

from collections.abc import Mapping

from proctor.engines.base import EngineConfig
from proctor.engines.capabilities import Capabilities
from proctor.engines.common_knobs import RESTART
from proctor.engines.knobs import Knob
from proctor.engines.numerics import Numerics, PlantedKnob
from proctor.engines.pseudo_model import CANDIDATES
from proctor.engines.scripted import options_of
from proctor.engines.surroundings import Site

_OTHERS = {"bfloat16": ("float16", "float32"), "float16": ("bfloat16", "float32")}
"""Number formats that a half-precision one is turned to; any other is turned to both of those."""


def knobs(config: EngineConfig, env: Mapping[str, str], site: Site) -> tuple[Knob, ...]:  # noqa: ARG001 (the contract)
    """A fresh process always; the rest where there are numerics."""
    numerics = options_of(config).numerics
    if numerics is None:
        return (RESTART,)
    formats = Knob(
        name="dtype",
        what="number format of the model",
        place="config",
        baseline=config.dtype,
        values=_OTHERS.get(config.dtype, ("bfloat16", "float16")),
        control=True,
    )
    return (*(_declared(knob, numerics, env) for knob in numerics.knobs), formats, RESTART)


def capabilities(config: EngineConfig, env: Mapping[str, str], site: Site) -> Capabilities:  # noqa: ARG001 (the contract)
    """Scripted answers are text and nothing else; the pseudo-model tells and does everything."""
    numerics = options_of(config).numerics
    if numerics is None:
        return Capabilities(logprobs=False, why_no_replay="scripted answers have no tokens", swap=True)
    if numerics.text_only:
        cached = any(effect.warm for effect in numerics.effects)
        return Capabilities(logprobs=False, caches_prompts=cached, why_no_replay="only texts are told", swap=True)
    return Capabilities(
        token_ids=True,
        top_logprobs=CANDIDATES,
        replay=True,
        caches_prompts=any(effect.warm for effect in numerics.effects),
        reference=None if config.dtype == "float64" else "float64",
        swap=True,
    )


def _declared(knob: PlantedKnob, numerics: Numerics, env: Mapping[str, str]) -> Knob:
    now = numerics.knob_values(env)[knob.name]
    return Knob(
        name=knob.name,
        what="planted",
        place="env" if knob.env else "option",
        baseline=now,
        values=tuple(value for value in (knob.default, *knob.values) if value != now),
        ordered=knob.ordered,
        listed=knob.listed,
        key="" if knob.env else f"numerics.settings.{knob.name}",
    )
