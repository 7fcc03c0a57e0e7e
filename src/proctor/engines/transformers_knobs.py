"""What can be turned at the transformers engine, and what it can tell and do."""

from __future__ import annotations

from collections.abc import Mapping

from proctor.engines.base import EngineConfig
from proctor.engines.capabilities import Capabilities
from proctor.engines.common_knobs import RESTART, dtype, option, threads, weights_format
from proctor.engines.knobs import Knob
from proctor.engines.surroundings import Site
from proctor.engines.swap_reasons import transformers_reason
from proctor.engines.transformers_inspection import ATTENTION, inspection, name_of

MULTIPLE = 64
"""Prompts are padded to a multiple of so many tokens in the arm that pads: enough to pad nearly every row."""
MOST_TOP = 1000
_MORE_EXACT = {"bfloat16": "float32", "float16": "float32", "float32": "float64"}


def knobs(config: EngineConfig, env: Mapping[str, str], site: Site) -> tuple[Knob, ...]:
    """Attention, padding, threads, number format, and a fresh process."""
    padding = Knob(
        name="padding",
        what="prompts padded on the left to a multiple of so many tokens, also where a row is alone",
        place="option",
        baseline=option(config, "pad_to_multiple_of"),
        values=(MULTIPLE,) if option(config, "pad_to_multiple_of") is None else (None,),
        key="pad_to_multiple_of",
        untried=(("right", "a model that generates goes on from the last token, which must be no padding"),),
    )
    return (_attention(config, env, site), padding, threads(env, site), dtype(config, _format(config)), RESTART)


def capabilities(config: EngineConfig, env: Mapping[str, str], site: Site) -> Capabilities:  # noqa: ARG001 (the contract)
    """Everything that can be asked for: the scores are at hand."""
    why = transformers_reason(config)
    return Capabilities(
        token_ids=True,
        swap=not why,
        why_no_swap=why,
        top_logprobs=MOST_TOP,
        replay=True,
        reference=_MORE_EXACT.get(_format(config) or ""),
    )


def _format(config: EngineConfig) -> str | None:
    return weights_format(config.model) if config.dtype == "auto" else config.dtype


def _attention(config: EngineConfig, env: Mapping[str, str], site: Site) -> Knob:
    found = inspection(config, env, site)
    # transformers takes sdpa where a model has it.
    default = "sdpa" if found.switch(name_of("sdpa")).effect == "works" else "eager"
    baseline = option(config, "attn_implementation", default)
    switches = {kind: found.switch(name_of(kind)) for kind in ("eager", *ATTENTION)}
    return Knob(
        name="attention",
        what="implementation of attention",
        place="option",
        baseline=baseline,
        values=tuple(kind for kind, switch in switches.items() if switch.effect == "works" and kind != baseline),
        key="attn_implementation",
        untried=tuple((kind, switch.why) for kind, switch in switches.items() if switch.effect != "works"),
    )
