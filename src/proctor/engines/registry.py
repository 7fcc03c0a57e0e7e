"""From a configuration to its engine. Only the module of the chosen engine is imported."""

from __future__ import annotations

from importlib import import_module

from msgspec.structs import replace

from proctor.engines.base import Engine, EngineConfig
from proctor.rows import UserError

HOMES = {
    "openai": ("proctor.engines.openai", "OpenAIEngine"),
    "scripted": ("proctor.engines.scripted", "ScriptedEngine"),
    "transformers": ("proctor.engines.transformers", "TransformersEngine"),
    "vllm": ("proctor.engines.vllm", "VllmEngine"),
}
"""Module and class of every kind of engine."""


def make_engine(config: EngineConfig) -> Engine:
    """The engine that `config` describes, not loaded yet, behind its planted faults if it has any.

    Raises:
        UserError: there is no engine of this kind.
    """
    home = HOMES.get(config.kind)
    if home is None:
        raise UserError(f"there is no engine {config.kind!r}", where="engine.kind", fix="one of " + ", ".join(HOMES))
    module, name = home
    engine: Engine = getattr(import_module(module), name)(replace(config, faults=()))
    if config.faults:
        from proctor.engines.faults import FaultyEngine

        return FaultyEngine(engine, config.faults, config.fault_state)
    return engine
