"""Which of vLLM's switches the installed version has, and whether it does anything with them here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from proctor.engines.inspection import Switch
from proctor.engines.sources import Module, Sources, named, strings

ARGUMENTS = "engine/arg_utils.py"
VARIABLES = "envs.py"
OPTIONS = (
    "async_scheduling",
    "attention_backend",
    "disable_cascade_attn",
    "enable_chunked_prefill",
    "enable_prefix_caching",
    "enable_trace_replay",
    "enforce_eager",
    "kv_cache_dtype",
    "max_num_batched_tokens",
    "mm_processor_cache_gb",
    "tensor_parallel_size",
)
COMPILATION = ("compile_mm_encoder", "cudagraph_mm_encoder")
ENVIRONMENT = (
    "VLLM_BATCH_INVARIANT",
    "VLLM_CPU_ATTN_SPLIT_KV",
    "VLLM_ENABLE_V1_MULTIPROCESSING",
    "VLLM_USE_BREAKABLE_CUDAGRAPH",
    "VLLM_USE_V2_MODEL_RUNNER",
)
WORDS = (*OPTIONS, *COMPILATION, *ENVIRONMENT, "def get_attn_backend_cls", "CacheDType = ")
_NO_PART = ("benchmarks/", "entrypoints/")
"""Programs around the engine: that they read a switch does not mean that it does anything."""
_NO_EFFECT = re.compile(r"no effect|has been removed|is ignored and|no longer (used|has)", re.IGNORECASE)
_READ_AS = {"attention_backend": ("attention_config", "backend"), "kv_cache_dtype": ("cache_config", "cache_dtype")}
"""Options that the engine's own configuration has under another name: owner and name."""


class _Declared(NamedTuple):
    where: str
    module: str
    note: str


def switches(sources: Sources, platform: str) -> list[Switch]:
    """Everything that is looked for, on one platform (``cpu``, ``cuda``)."""
    options = [_option(sources, name, name, platform) for name in OPTIONS]
    compilation = [_option(sources, name, f"compilation_config.{name}", platform) for name in COMPILATION]
    return [*options, *compilation, *(_variable(sources, name) for name in ENVIRONMENT)]


def _option(sources: Sources, name: str, shown: str, platform: str) -> Switch:
    owner = "CompilationConfig" if shown != name else "EngineArgs"
    declared = _declaration(sources, name, owner)
    if declared is None:
        return Switch(name=shown, exists=False, why="this version has no such option")
    note = _note(sources, name) or _overridden(sources, name, platform) or _fixed_backend(sources, name, platform)
    if note is not None:
        return Switch(name=shown, exists=True, effect="no effect", why=note.note, where=note.where)
    reader = next(_readers(sources, name), None)
    if reader is None:
        return Switch(name=shown, exists=True, why="nothing was found that reads it", where=declared.where)
    return Switch(name=shown, exists=True, effect="works", why="its value is read", where=reader)


def _variable(sources: Sources, name: str) -> Switch:
    module = sources.module(VARIABLES)
    known = module is not None and any(
        isinstance(node, ast.Dict) and any(isinstance(key, ast.Constant) and key.value == name for key in node.keys)
        for node in ast.walk(module.tree)
    )
    if not known:
        return Switch(name=name, exists=False, why="this version has no such variable")
    reader = next(_readers(sources, name), None)
    if reader is None:
        return Switch(name=name, exists=True, effect="no effect", why="no code reads it", where=VARIABLES)
    return Switch(name=name, exists=True, effect="works", why="its value is read", where=reader)


def _declaration(sources: Sources, name: str, owner: str) -> _Declared | None:
    for module in _declaring(sources, name):
        for found, node, note in module.fields():
            if found.name == owner and isinstance(node.target, ast.Name) and node.target.id == name:
                return _Declared(module.at(node), module.name, note)
    return None


def _declaring(sources: Sources, name: str) -> Iterator[Module]:
    """Modules of vLLM's configuration that mention a switch."""
    own = (ARGUMENTS, "config.py", "config/")
    return (module for module in sources.mentioning(name) if module.name.startswith(own))


def _note(sources: Sources, name: str) -> _Declared | None:
    """Words of the authors to the effect that the switch does nothing: below its field, or in a message of its own."""
    dashed = name.replace("_", "-")
    for module in _declaring(sources, name):
        for _, node, note in module.fields():
            if isinstance(node.target, ast.Name) and node.target.id == name and _NO_EFFECT.search(note):
                return _Declared(module.at(node), module.name, note)
        for message in module.tree.body if module.name == ARGUMENTS else ():
            text = " ".join("".join(strings(message)).split()) if isinstance(message, ast.Assign) else ""
            if dashed in text and _NO_EFFECT.search(text):
                return _Declared(module.at(message), module.name, text)
    return None


def _overridden(sources: Sources, name: str, platform: str) -> _Declared | None:
    """A constant that the platform always puts in its place."""
    module = sources.module(f"platforms/{platform}.py")
    for function in module.functions("check_and_update_config") if module else ():
        for node in function.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and _targets(node, name):
                assert module is not None
                note = f"on {platform} it is always set to {node.value.value!r}"
                return _Declared(module.at(node), module.name, note)
    return None


def _fixed_backend(sources: Sources, name: str, platform: str) -> _Declared | None:
    """Where the platform has attention of its own only, whatever is asked for."""
    module = sources.module(f"platforms/{platform}.py")
    if name != "attention_backend" or platform != "cpu" or module is None:
        return None
    for function in module.functions("get_attn_backend_cls"):
        backends: set[str] = set()
        for node in ast.walk(function):
            if isinstance(node, ast.Return):
                backends |= {found for found in named(node) if found.isupper()}
        if backends and all(found.startswith(("CPU_", "AMX_")) for found in backends):
            note = f"on {platform} there is only {', '.join(sorted(backends))}, whatever is asked for"
            return _Declared(module.at(function), module.name, note)
    return None


def _targets(node: ast.Assign, name: str) -> bool:
    return any(isinstance(target, ast.Attribute) and target.attr == name for target in node.targets)


def _readers(sources: Sources, name: str) -> Iterator[str]:
    """Places that read the value, outside of where it is declared and handed on."""
    owner, attribute = _READ_AS.get(name, ("", name))
    for module in sources.mentioning(owner or name):
        if module.name in (ARGUMENTS, VARIABLES) or module.name.startswith(_NO_PART):
            continue
        yield from (module.at(node) for node in ast.walk(module.tree) if _reads(node, owner, attribute))


def _reads(node: ast.AST, owner: str, attribute: str) -> bool:
    if not isinstance(node, ast.Attribute) or node.attr != attribute or not isinstance(node.ctx, ast.Load):
        return False
    return not owner or owner in named(node.value)


def literal_values(sources: Sources, alias: str) -> tuple[str, ...]:
    """Values of a ``Literal`` type alias, e.g. ``CacheDType``."""
    for module in sources.mentioning(alias):
        for node in module.tree.body:
            if isinstance(node, ast.Assign) and alias in {getattr(target, "id", "") for target in node.targets}:
                return tuple(strings(node.value))
    return ()


def default_of(module: Module | None, name: str) -> object:
    """The constant default of a field, also inside ``Field(default=...)``; None if there is none."""
    for _, node, _ in module.fields() if module else ():
        if isinstance(node.target, ast.Name) and node.target.id == name:
            keywords = node.value.keywords if isinstance(node.value, ast.Call) else []
            values = [node.value, *(keyword.value for keyword in keywords if keyword.arg == "default")]
            return next((value.value for value in values if isinstance(value, ast.Constant)), None)
    return None
