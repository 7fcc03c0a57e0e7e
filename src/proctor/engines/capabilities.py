"""What an engine can tell and be asked to do beyond an answer, declared by configuration before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import msgspec

from proctor.engines.base import EngineConfig
from proctor.engines.surroundings import Site, look


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an audit may count on.

    Attributes:
        token_ids: responses carry the ids of the chosen tokens.
        logprobs: log-probabilities of the chosen tokens can be asked for.
        top_logprobs: most tokens a position that can be asked for; 0: none.
        replay: the engine can be made to choose given tokens (`Sampling.forced`).
        replay_options: options that the engine must be started with for that, on top of its own.
        why_no_replay: the reason where it cannot.
        reset_cache: whether a cache of prompts that outlives a request can be emptied without a restart.
        caches_prompts: whether there is such a cache at all, with this configuration.
        swap: whether `Engine.swap` can take over another checkpoint of the same architecture, as far as can be told
            beforehand; `Engine.swap` itself has the last word, and a fingerprint the very last.
        why_no_swap: the reason where it cannot.
        restart: whether a fresh process of the engine can be started.
        reference: number format of a run that is more exact than this one (an `EngineConfig.dtype`); None: there is
            none.
    """

    token_ids: bool = False
    logprobs: bool = True
    top_logprobs: int = 0
    replay: bool = False
    replay_options: dict[str, Any] = {}
    why_no_replay: str = ""
    reset_cache: bool = False
    caches_prompts: bool = False
    swap: bool = False
    why_no_swap: str = ""
    restart: bool = True
    reference: str | None = None


OPENAI = Capabilities(
    top_logprobs=20,
    why_no_replay="the protocol has no way to force tokens",
    caches_prompts=True,
    why_no_swap="the server's weights are not this engine's to change",
    restart=False,
)
"""Of a server, about which nothing else is known: the protocol allows 20 tokens a position."""
HOMES = {
    "scripted": "proctor.engines.scripted_knobs",
    "transformers": "proctor.engines.transformers_knobs",
    "vllm": "proctor.engines.vllm_capabilities",
}


def capabilities(config: EngineConfig, env: Mapping[str, str] | None = None, site: Site | None = None) -> Capabilities:
    """What the engine of this configuration can do.

    Args:
        config: the engine's configuration.
        env: environment variables that its process gets on top of this process's.
        site: what is installed where it runs, from `proctor.engines.surroundings.look`; looked up if not given.
    """
    home = HOMES.get(config.kind)
    if home is None:
        return OPENAI
    declared: Capabilities = import_module(home).capabilities(config, env or {}, site or look(config.kind))
    return declared
