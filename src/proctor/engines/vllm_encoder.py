"""vLLM's own switches for its vision encoder: set, refused where they cannot work, and looked at once it runs.

What they are called: ``CompilationConfig`` (``compile_mm_encoder``, ``cudagraph_mm_encoder`` with its budgets) and
``EngineArgs`` (``mm_encoder_tp_mode``) of vLLM 0.32 and 0.33.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from proctor.engines.base import EngineConfig
from proctor.engines.compiling.settings import EncoderSwitches
from proctor.engines.sources import Module
from proctor.rows import UserError

WHERE = "engine.compile"
COMPILATION = "compilation_config"
PARALLEL = "mm_encoder_tp_mode"
_OWNERS = {COMPILATION: "CompilationConfig", PARALLEL: "EngineArgs"}
_FILES = ("config/compilation.py", "config.py", "engine/arg_utils.py")


class Knob(NamedTuple):
    """One switch: its key in the spec, vLLM's argument, the key inside of it if there is one, and the value."""

    key: str
    argument: str
    inner: str
    value: Any

    @property
    def shown(self) -> str:
        """As vLLM's users write it."""
        return f"{self.argument}.{self.inner}" if self.inner else self.argument


def knobs(switches: EncoderSwitches) -> list[Knob]:
    """The switches that are to be set."""
    wanted = (
        Knob("encoder", COMPILATION, "compile_mm_encoder", switches.encoder or None),
        Knob("graphs", COMPILATION, "cudagraph_mm_encoder", switches.graphs or None),
        Knob("graph_budgets", COMPILATION, "encoder_cudagraph_token_budgets", list(switches.graph_budgets) or None),
        Knob(
            "graph_max_images", COMPILATION, "encoder_cudagraph_max_vision_items_per_batch", switches.graph_max_images
        ),
        Knob("graph_max_frames", COMPILATION, "encoder_cudagraph_max_frames_per_batch", switches.graph_max_frames),
        Knob("parallel", PARALLEL, "", switches.parallel),
    )
    return [knob for knob in wanted if knob.value is not None]


def encoder_arguments(config: EngineConfig) -> dict[str, Any]:
    """Arguments for vLLM's ``EngineArgs``; a ``compilation_config`` among the options is kept and added to."""
    found: dict[str, Any] = {}
    for knob in knobs(config.encoder) if config.encoder is not None else ():
        if knob.inner:
            own = config.options.get(COMPILATION) or {}
            found.setdefault(COMPILATION, dict(own))[knob.inner] = knob.value
        else:
            found[knob.argument] = knob.value
    return found


def check_encoder(config: EngineConfig, home: Path, version: str, *, on_cpu: bool) -> None:
    """The switches exist in this vLLM and can work here.

    Args:
        config: the engine's configuration.
        home: directory of the installed package.
        version: its version.
        on_cpu: whether it is the CPU build.

    Raises:
        UserError: which one cannot work, and why.
    """
    if config.encoder is None:
        return
    known = _known(home)
    for knob in knobs(config.encoder):
        where = f"{WHERE}.{knob.key}"
        if (knob.inner or knob.argument) not in known[_OWNERS[knob.argument]]:
            raise UserError(f"vLLM {version} has no {knob.shown}", where=where, fix="leave it out")
        _check_options(config.options, knob, where)
        if why := _hopeless(config, knob, on_cpu=on_cpu):
            raise UserError(why, where=where, fix="leave it out")


def _known(home: Path) -> dict[str, set[str]]:
    """Names of the fields of vLLM's configuration, read from its sources."""
    found: dict[str, set[str]] = {owner: set() for owner in _OWNERS.values()}
    for name in _FILES:
        path = home / name
        module = Module(name, path.read_text(encoding="utf-8", errors="replace") if path.is_file() else "")
        for owner, node, _ in module.fields():
            if owner.name in found:
                found[owner.name].add(getattr(node.target, "id", ""))
    return found


def _check_options(options: Mapping[str, Any], knob: Knob, where: str) -> None:
    own = options.get(knob.argument)
    if own is None:
        return
    if knob.inner and not isinstance(own, dict):
        fix = f"write engine.options.{COMPILATION} as a mapping"
        raise UserError(f"engine.options.{COMPILATION} is {own!r}, to which nothing can be added", where=where, fix=fix)
    if not knob.inner or knob.inner in own:
        raise UserError(f"engine.options sets {knob.shown} as well", where=where, fix="set one of the two")


def _hopeless(config: EngineConfig, knob: Knob, *, on_cpu: bool) -> str:
    """Why the switch could only do harm or nothing here; empty if nothing is known against it."""
    if knob.argument != COMPILATION:
        return ""
    if on_cpu and knob.key == "encoder":
        return (
            "vLLM's CPU build fails at the first image when its encoder is compiled (RuntimeError: Inference tensors "
            "cannot be saved for backward, seen with 0.32), and with enforce_eager the switch has no effect there"
        )
    if on_cpu:
        return "there are no CUDA graphs on a CPU"
    if config.options.get("enforce_eager"):
        return f"{knob.shown} has no effect with engine.options.enforce_eager"
    return ""


class Effect(NamedTuple):
    """Whether a switch is in effect in a running engine (None: that cannot be seen), and why or why not."""

    switch: str
    in_effect: bool | None
    why: str


def effects(engine: Any, switches: EncoderSwitches, env: Mapping[str, str]) -> Iterator[Effect]:
    """What became of each switch, by the engine's resolved configuration and by what its first worker has.

    Args:
        engine: vLLM's ``LLMEngine``, started.
        switches: those that were asked for.
        env: the environment of its process.
    """
    resolved, worker = engine.vllm_config, _worker(engine)
    for knob in knobs(switches):
        if knob.key == "encoder":
            yield Effect(knob.shown, *_compiled(resolved, worker, env))
        elif knob.key == "graphs":
            yield Effect(knob.shown, *_graphs(resolved, worker))
        elif knob.key == "parallel":
            yield Effect(knob.shown, *_shared(resolved, knob.value))


def _worker(engine: Any) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = engine.collective_rpc("proctor_encoder")[0]
    except Exception:  # whatever a user's own executor makes of a method that it does not know
        return None
    return found


def _compiled(resolved: Any, worker: Mapping[str, Any] | None, env: Mapping[str, str]) -> tuple[bool | None, str]:
    compilation = resolved.compilation_config
    if not compilation.compile_mm_encoder:
        return False, "vLLM's resolved configuration has it off"
    mode = getattr(compilation.mode, "name", str(compilation.mode))
    if mode in ("NONE", "STOCK_TORCH_COMPILE"):
        return False, f"the compilation mode is {mode}{_cause(resolved, env)}: modules compiled on request are then not"
    if worker is None:
        return None, f"the compilation mode is {mode}; the workers cannot be asked"
    if not worker["compiled"]:
        return False, "no module of this model's encoder is one that vLLM compiles"
    return True, f"{worker['compiled']} modules of the encoder, compilation mode {mode}"


def _cause(resolved: Any, env: Mapping[str, str]) -> str:
    """What set the mode to NONE, as far as that can be told (the chain is in `proctor.engines.vllm_conflicts`)."""
    if resolved.model_config.enforce_eager:
        return " (enforce_eager)"
    if env.get("TORCH_COMPILE_DISABLE") == "1":
        return " (TORCH_COMPILE_DISABLE=1)"
    for name in ("VLLM_BATCH_INVARIANT", "VLLM_USE_BREAKABLE_CUDAGRAPH"):
        if env.get(name, "0") not in ("", "0"):
            return f" ({name}={env[name]})"
    if resolved.device_config.device_type == "cpu" and resolved.lora_config is not None:
        return " (adapters on the CPU platform)"
    return ""


def _graphs(resolved: Any, worker: Mapping[str, Any] | None) -> tuple[bool | None, str]:
    if not resolved.compilation_config.cudagraph_mm_encoder:
        return False, "vLLM's resolved configuration has it off"
    if resolved.model_config.enforce_eager:
        return False, "enforce_eager records no CUDA graphs"
    if worker is None:
        return None, "the workers cannot be asked"
    if not worker["graphs"]:
        return False, "this model's encoder cannot be recorded"
    return True, f"budgets of {', '.join(map(str, worker['budgets'])) or 'vLLM'} encoder tokens"


def _shared(resolved: Any, wanted: str) -> tuple[bool, str]:
    own = getattr(resolved.model_config.multimodal_config, PARALLEL, None)
    if own != wanted:
        return False, f"vLLM has set it to {own}: the model does not support {wanted}"
    ranks = resolved.parallel_config.tensor_parallel_size
    if ranks == 1:
        return False, "there is one rank: nothing is shared out"
    return True, f"over {ranks} ranks"
