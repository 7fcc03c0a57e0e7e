"""From the engine's configuration to vLLM's own arguments."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from proctor.engines.base import EngineConfig
from proctor.engines.options import check_options
from proctor.engines.vllm_encoder import encoder_arguments
from proctor.engines.vllm_worker import EXTENSION
from proctor.rows import UserError

RESERVED = {
    "model": "engine.checkpoints",
    "dtype": "engine.dtype",
    "max_model_len": "engine.max_model_len",
    "max_num_seqs": "engine.batch_size",
}
"""Arguments that have a key of their own in the spec."""
IMAGES_PER_PROMPT = 64
"""Most images a row may have unless ``limit_mm_per_prompt`` says otherwise: the rows are not known in advance."""
CPU_KV_CACHE_BYTES = 2**30
"""Key-value cache on a CPU; vLLM's own default there is nearly all of the machine's memory."""

TESTED_VERSION = "0.32"
_USED = (
    ("vllm.exceptions", "VLLMClientError"),
    ("vllm.renderers.inputs.preprocess", "parse_model_prompt"),
    ("vllm.v1.engine.exceptions", "EngineDeadError"),
    ("vllm.v1.engine.llm_engine", "LLMEngine"),
)

_MULTIPROCESSING = "VLLM_ENABLE_V1_MULTIPROCESSING"
_ENVIRONMENT = {
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_NO_USAGE_STATS": "1",
    # On a CPU vLLM would pin its threads to cores, the same ones for every engine on the machine.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}


def set_environment(*, multiprocessing: bool) -> None:
    """Sets vLLM's environment variables where the user has not; must happen before vLLM is imported.

    Args:
        multiprocessing: whether vLLM's engine core runs in a process of its own.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if multiprocessing:
        os.environ[_MULTIPROCESSING] = "1"
    else:  # one process: start-up takes 2 s instead of 14 s, and an exception keeps its cause
        os.environ.setdefault(_MULTIPROCESSING, "0")


def check_version() -> None:
    """Checks that the installed vLLM has the interfaces that this engine uses.

    Raises:
        UserError: it has not.
    """
    import vllm

    try:
        for module, name in _USED:
            getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"vLLM {vllm.__version__} is not one that this engine knows ({error})",
            where="engine.python",
            fix=f"install vLLM {TESTED_VERSION}",
        ) from error


def check_arguments(config: EngineConfig) -> None:
    """Checks the options against the argument list of the vLLM that is installed.

    Raises:
        UserError: names the unknown option and the nearest one.
    """
    import vllm
    from vllm.engine.arg_utils import EngineArgs

    known = [name for name in EngineArgs.__dataclass_fields__ if not name.startswith("_")]
    check_options(config.options, known, engine=f"vLLM {vllm.__version__}", reserved=RESERVED)


def engine_arguments(config: EngineConfig, *, on_cpu: bool, takes_images: bool) -> dict[str, Any]:
    """Keyword arguments for vLLM's ``EngineArgs``; the user's options win over every default.

    Args:
        config: the engine's configuration.
        on_cpu: whether this is vLLM's CPU build.
        takes_images: whether the model takes images.
    """
    defaults: dict[str, Any] = {"disable_log_stats": True}
    if config.options.get("distributed_executor_backend") in (None, "mp", "uni"):
        # Elsewhere Proctor need not be importable where the workers run.
        defaults["worker_extension_cls"] = EXTENSION
    if takes_images:
        defaults["limit_mm_per_prompt"] = {"image": IMAGES_PER_PROMPT, "video": 0}
        # Up to 4 GiB of processed images otherwise, of use only where rows share images.
        defaults["mm_processor_cache_gb"] = 0
    if on_cpu:
        # Compiling takes half a minute on a CPU and gains nothing there.
        defaults["enforce_eager"] = True
        if "VLLM_CPU_KVCACHE_SPACE" not in os.environ:
            defaults["kv_cache_memory_bytes"] = CPU_KV_CACHE_BYTES
    own = {"model": config.model, "dtype": config.dtype, "max_num_seqs": config.batch_size}
    if config.max_model_len is not None:
        own["max_model_len"] = config.max_model_len
    return defaults | config.options | own | encoder_arguments(config)
