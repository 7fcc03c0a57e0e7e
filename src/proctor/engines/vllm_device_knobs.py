"""vLLM's knobs that depend on the device: which values make sense on the one at hand."""

from __future__ import annotations

from collections.abc import Mapping

from proctor.engines.base import EngineConfig
from proctor.engines.common_knobs import option, variable
from proctor.engines.knobs import Knob
from proctor.engines.surroundings import Site
from proctor.engines.vllm_inspection import attention_backends, cache_formats, device_of

_BACKENDS = ("FLASH_ATTN", "TRITON_ATTN", "FLASHINFER", "FLEX_ATTENTION")
"""Attention backends for ordinary models on NVIDIA GPUs; the others are for special models or other hardware."""
_FP8_CAPABILITY = 8.9
_INVARIANT_CAPABILITY = 8.0


def device_knobs(config: EngineConfig, env: Mapping[str, str], site: Site) -> list[Knob]:
    """Devices, kernels, number format of the cache, and the variables of the environment."""
    on_gpu = device_of(site) == "cuda"
    return [
        _parallel(config, len(site.gpus) if on_gpu else 0),
        _attention(config, site, on_gpu=on_gpu),
        _cache_format(config, site, on_gpu=on_gpu),
        _invariant(env, site, on_gpu=on_gpu),
        _variable(
            "VLLM_CPU_ATTN_SPLIT_KV",
            "attention splits long contexts over threads",
            env,
            default=True,
            why_not="on a CPU only" if on_gpu else "",
        ),
        _variable(
            "VLLM_USE_V2_MODEL_RUNNER",
            "vLLM's second model runner",
            env,
            default=True,
            why_not="" if on_gpu and site.home("triton") is not None else "needs a GPU and Triton",
        ),
    ]


def _parallel(config: EngineConfig, gpus: int) -> Knob:
    now = int(option(config, "tensor_parallel_size", 1) or 1)
    values = tuple(count for count in (1, 2, 4, 8) if count <= gpus and count != now)
    return Knob(
        name="tensor_parallel_size",
        what="devices that share each layer",
        place="option",
        baseline=now,
        values=values,
        ordered=True,
        listed=True,
        untried=() if values else (("", "there is one device"),),
    )


def _attention(config: EngineConfig, site: Site, *, on_gpu: bool) -> Knob:
    now = option(config, "attention_backend")
    there = [name for name in _BACKENDS if name in attention_backends(site)]
    if site.home("flashinfer") is None and "FLASHINFER" in there:
        there.remove("FLASHINFER")
    absent = [(name, "not in this version, or its package is not here") for name in _BACKENDS if name not in there]
    return Knob(
        name="attention_backend",
        what="implementation of attention",
        place="option",
        baseline=now,
        values=tuple(name for name in there if name != now) if on_gpu else (),
        untried=(*absent, ("others", "for special models or other hardware")) if on_gpu else (),
    )


def _cache_format(config: EngineConfig, site: Site, *, on_gpu: bool) -> Knob:
    now = option(config, "kv_cache_dtype", "auto")
    formats = cache_formats(site)
    capable = on_gpu and all(gpu.capability >= _FP8_CAPABILITY for gpu in site.gpus)
    untried = [(name, "not asked for: a run with it is another model") for name in formats if name not in ("fp8", now)]
    if not capable:
        untried.append(("fp8", f"needs a GPU of compute capability {_FP8_CAPABILITY} or more"))
    return Knob(
        name="kv_cache_dtype",
        what="number format of the stored keys and values",
        place="option",
        baseline=now,
        values=("fp8",) if capable and "fp8" in formats and now != "fp8" else (),
        control=True,
        untried=tuple(untried),
    )


def _invariant(env: Mapping[str, str], site: Site, *, on_gpu: bool) -> Knob:
    why_not = ""
    if not on_gpu:
        why_not = "its kernels are for GPUs"
    elif site.home("triton") is None:
        why_not = "its kernels need Triton"
    elif any(gpu.capability < _INVARIANT_CAPABILITY for gpu in site.gpus):
        why_not = f"needs GPUs of compute capability {_INVARIANT_CAPABILITY} or more"
    what = "kernels that do not depend on the batch"
    return _variable("VLLM_BATCH_INVARIANT", what, env, default=False, why_not=why_not)


def _variable(name: str, what: str, env: Mapping[str, str], *, default: bool, why_not: str) -> Knob:
    text = variable(name, env)
    now = default if text is None else text.strip().lower() not in ("", "0", "false")
    return Knob(
        name=name,
        what=what,
        place="env",
        baseline=now,
        values=() if why_not else (not now,),
        untried=(("", why_not),) if why_not else (),
    )
