"""What can be turned at the vLLM engine: only what the installed version has, and what does something on its device."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from proctor.engines.base import EngineConfig
from proctor.engines.common_knobs import RESTART, dtype, model_configuration, option, threads
from proctor.engines.inspection import Inspection
from proctor.engines.knobs import Knob
from proctor.engines.surroundings import Site
from proctor.engines.vllm_capabilities import number_format
from proctor.engines.vllm_device_knobs import device_knobs
from proctor.engines.vllm_inspection import device_of, inspection

CHUNK = 256
"""Most tokens of a step in the arm that splits prompts; vLLM's own limits start at thousands."""


def knobs(config: EngineConfig, env: Mapping[str, str], site: Site) -> tuple[Knob, ...]:
    """Everything that is known of, tried or not."""
    found = inspection(config, env, site)
    eager = bool(option(config, "enforce_eager", device_of(site) == "cpu"))
    declared = [*_scheduling(config), _toggle("enforce_eager", "layers are neither compiled nor recorded", now=eager)]
    declared += device_knobs(config, env, site)
    if "vision_config" in model_configuration(config.model):
        declared += _images(config, found, eager=eager)
    ours = [threads(env, site), dtype(config, number_format(config)), _processes(config), RESTART]
    return (*(_as_installed(knob, found) for knob in declared), *ours)


def _as_installed(knob: Knob, found: Inspection) -> Knob:
    """The knob, with nothing to try where the installed version has no such switch or makes nothing of it."""
    switch = found.switch(knob.key or knob.name)
    if switch.exists and switch.effect != "no effect":
        return knob
    why = f"{switch.why} ({switch.where})" if switch.where else switch.why
    return _not_tried(knob, f"no effect here: {why}" if switch.exists else why)


def _not_tried(knob: Knob, why: str) -> Knob:
    return replace(knob, values=(), untried=(*knob.untried, ("", why)))


def _scheduling(config: EngineConfig) -> list[Knob]:
    caching = option(config, "enable_prefix_caching") is not False
    chunked = option(config, "enable_chunked_prefill") is not False
    overlapped = option(config, "async_scheduling") is not False
    tokens = option(config, "max_num_batched_tokens")
    small = max(CHUNK, config.batch_size)
    return [
        _toggle("enable_prefix_caching", "keys and values of equal beginnings are kept and shared", now=caching),
        _toggle("enable_chunked_prefill", "long prompts are worked on in several steps", now=chunked),
        Knob(
            name="max_num_batched_tokens",
            what="most tokens of a step: prompts beyond it are split",
            place="option",
            baseline=tokens,
            values=(small,) if tokens is None or tokens > small else (),
        ),
        _toggle("async_scheduling", "the next step is planned while one runs", now=overlapped),
    ]


def _images(config: EngineConfig, found: Inspection, *, eager: bool) -> list[Knob]:
    cached = option(config, "mm_processor_cache_gb", 0)
    cache = Knob(
        name="mm_processor_cache_gb",
        what="gibibytes of processed images that are kept and used again",
        place="option",
        baseline=cached,
        values=(0,) if cached else (1,),
    )
    compiled = _encoder("compile_mm_encoder", "the image encoder is compiled", config)
    recorded = _encoder("cudagraph_mm_encoder", "the image encoder runs from recorded CUDA graphs", config)
    if found.device == "cpu":
        return [cache, *(_not_tried(knob, "for GPUs only") for knob in (compiled, recorded))]
    clash = next((one for one in found.conflicts if one.switches == ("enforce_eager", compiled.key)), None)
    if eager and clash is not None:
        compiled = _not_tried(compiled, f"no effect here: {clash.what} ({', '.join(clash.where)})")
    return [cache, compiled, recorded]


def _encoder(name: str, what: str, config: EngineConfig) -> Knob:
    key = f"compilation_config.{name}"
    now = bool(option(config, key, False))
    return Knob(name=name, what=what, place="option", baseline=now, values=(not now,), key=key)


def _toggle(name: str, what: str, *, now: bool) -> Knob:
    return Knob(name=name, what=what, place="option", baseline=now, values=(not now,))


def _processes(config: EngineConfig) -> Knob:
    now = config.multiprocessing
    what = "vLLM's engine core in a process of its own"
    return Knob(name="multiprocessing", what=what, place="config", baseline=now, values=(not now,))
