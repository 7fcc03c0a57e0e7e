"""What the installed transformers has for a model: versions, and the kinds of attention that its class declares."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from proctor.engines.base import EngineConfig
from proctor.engines.common_knobs import model_configuration
from proctor.engines.inspection import Inspection, Switch
from proctor.engines.sources import Module
from proctor.engines.surroundings import Site

ATTENTION = {"sdpa": "_supports_sdpa", "flash_attention_2": "_supports_flash_attn"}
"""Kinds of attention beside ``eager``, which every model has, and the mark of a model's class that has it."""


def inspection(config: EngineConfig, env: Mapping[str, str], site: Site) -> Inspection:  # noqa: ARG001 (the contract)
    """Every kind of attention as a switch."""
    device = "cuda" if site.gpus and config.device != "cpu" else "cpu"
    switches = tuple(_attention(kind, config, site, device) for kind in ("eager", *ATTENTION))
    return Inspection(versions=site.versions, device=device, switches=switches)


def name_of(kind: str) -> str:
    """The switch of a kind of attention."""
    return f"attn_implementation={kind}"


def _attention(kind: str, config: EngineConfig, site: Site, device: str) -> Switch:
    name = name_of(kind)
    if kind == "eager":
        return Switch(name=name, exists=True, effect="works", why="every model has it")
    if kind == "flash_attention_2" and (device != "cuda" or site.home("flash_attn") is None):
        return Switch(name=name, exists=False, why="needs a GPU and the package flash-attn, which are not both here")
    home = site.home("transformers")
    kind_of_model = str(model_configuration(config.model).get("model_type", ""))
    where = _mark(str(home), kind_of_model, ATTENTION[kind]) if home and kind_of_model else None
    if where is None:
        return Switch(name=name, exists=True, why="the model's class does not say whether it has it")
    return Switch(name=name, exists=True, effect="works", why=f"{ATTENTION[kind]} is set", where=where)


@lru_cache(maxsize=32)
def _mark(home: str, kind_of_model: str, mark: str) -> str | None:
    """Where a model's class sets a mark to true."""
    for path in sorted((Path(home) / "models" / kind_of_model).glob("modeling_*.py")):
        module = Module(path.relative_to(home).as_posix(), path.read_text(encoding="utf-8", errors="replace"))
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Assign) and ast.unparse(node) == f"{mark} = True":
                return module.at(node)
    return None
