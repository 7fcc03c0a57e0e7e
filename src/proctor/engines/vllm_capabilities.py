"""What the vLLM engine can tell and do, as far as the installed version and its device go."""

from __future__ import annotations

from collections.abc import Mapping

from proctor.engines.base import EngineConfig
from proctor.engines.capabilities import Capabilities
from proctor.engines.common_knobs import option, variable, weights_format
from proctor.engines.surroundings import Site
from proctor.engines.vllm_inspection import device_of, inspection, most_logprobs
from proctor.engines.vllm_swap import why_no_swap

REPLAY = "enable_trace_replay"


def capabilities(config: EngineConfig, env: Mapping[str, str], site: Site) -> Capabilities:
    """vLLM tells tokens and log-probabilities; it replays where its second model runner runs."""
    why = _why_no_replay(config, env, site)
    unswappable = why_no_swap(config, site)
    asked = option(config, "max_logprobs")
    limit = asked if isinstance(asked, int) and asked > 0 else most_logprobs(site)
    return Capabilities(
        token_ids=True,
        top_logprobs=limit,
        replay=not why,
        replay_options={} if why else {REPLAY: True},
        why_no_replay=why,
        swap=not unswappable,
        why_no_swap=unswappable,
        caches_prompts=option(config, "enable_prefix_caching") is not False,
        reference=None if number_format(config) == "float32" else "float32",
    )


def number_format(config: EngineConfig) -> str | None:
    """The format that vLLM computes in: with ``auto``, a model of 32 bits is run in bfloat16."""
    if config.dtype != "auto":
        return config.dtype
    found = weights_format(config.model)
    return "bfloat16" if found == "float32" else found


def _why_no_replay(config: EngineConfig, env: Mapping[str, str], site: Site) -> str:
    if not inspection(config, env, site).switch(REPLAY).exists:
        return "this vLLM has no trace replay"
    needs = "trace replay needs vLLM's second model runner"
    if device_of(site) == "cpu":
        return f"{needs}, which the CPU build does not have"
    if site.home("triton") is None:
        return f"{needs}, and that needs Triton"
    if variable("VLLM_USE_V2_MODEL_RUNNER", env) == "0":
        return f"{needs}, which VLLM_USE_V2_MODEL_RUNNER=0 turns off"
    return ""
