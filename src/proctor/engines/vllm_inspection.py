"""What the installed vLLM makes of its switches."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from proctor.engines.base import EngineConfig
from proctor.engines.inspection import Conflict, Inspection, Switch
from proctor.engines.sources import Sources
from proctor.engines.surroundings import Site
from proctor.engines.vllm_conflicts import WORDS as CONFLICT_WORDS
from proctor.engines.vllm_conflicts import conflicts
from proctor.engines.vllm_switches import WORDS as SWITCH_WORDS
from proctor.engines.vllm_switches import default_of, literal_values, switches

MAX_LOGPROBS = 20
"""vLLM's own limit where its sources do not tell another one."""


def device_of(site: Site) -> str:
    """What this vLLM runs on: its CPU build says so in its name or version."""
    package = site.packages.get("vllm")
    if package is None or "cpu" in package.distribution or "cpu" in package.version or not site.gpus:
        return "cpu"
    return "cuda"


def inspection(config: EngineConfig, env: Mapping[str, str], site: Site) -> Inspection:  # noqa: ARG001 (the contract)
    """Every switch and conflict; nothing where vLLM is not installed."""
    home = site.home("vllm")
    device = device_of(site)
    if home is None:
        return Inspection(versions=site.versions, device=device)
    found, clashes = _read(str(home), device)
    return Inspection(versions=site.versions, device=device, switches=found, conflicts=clashes)


@lru_cache(maxsize=4)
def sources_of(home: str) -> Sources:
    """vLLM's sources, as far as they matter here."""
    words = {*SWITCH_WORDS, *CONFLICT_WORDS, "class AttentionBackendEnum"}
    return Sources(Path(home), words)


@lru_cache(maxsize=4)
def _read(home: str, device: str) -> tuple[tuple[Switch, ...], tuple[Conflict, ...]]:
    sources = sources_of(home)
    return tuple(switches(sources, device)), tuple(conflicts(sources))


def most_logprobs(site: Site) -> int:
    """How many log-probabilities a position may be asked for by default."""
    home = site.home("vllm")
    found = default_of(sources_of(str(home)).module("config/model.py"), "max_logprobs") if home else None
    return found if isinstance(found, int) and found > 0 else MAX_LOGPROBS


def cache_formats(site: Site) -> tuple[str, ...]:
    """Number formats that the key-value cache may have."""
    home = site.home("vllm")
    return literal_values(sources_of(str(home)), "CacheDType") if home else ()


def attention_backends(site: Site) -> tuple[str, ...]:
    """Names of the attention backends that this version has."""
    home = site.home("vllm")
    module = sources_of(str(home)).module("v1/attention/backends/registry.py") if home else None
    if module is None:
        return ()
    return tuple(
        target.id
        for owner in module.classes("AttentionBackendEnum")
        for node in owner.body
        for target in getattr(node, "targets", ())
    )
