"""Knobs that several engines have in common."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proctor.engines.base import EngineConfig
from proctor.engines.knobs import Knob, Value
from proctor.engines.surroundings import Site

RESTART = Knob(name="restart", what="the same again, in a fresh process of the engine", place="process", values=(True,))
_THREADS = "OMP_NUM_THREADS"


def threads(env: Mapping[str, str], site: Site) -> Knob:
    """Threads of the engine's arithmetic on the CPU: one, and as many as there are processors."""
    now = variable(_THREADS, env)
    baseline = int(now) if now is not None and now.isdecimal() else site.cpus
    values = tuple(count for count in sorted({1, 2, site.cpus}) if count <= site.cpus and count != baseline)
    return Knob(
        name="threads",
        what="threads of arithmetic on the CPU",
        place="env",
        baseline=baseline,
        values=values,
        ordered=True,
        key=_THREADS,
        untried=() if values else (("", "there is one processor"),),
    )


def dtype(config: EngineConfig, now: str | None) -> Knob:
    """The number format, which must change what comes out: 32 bits where there are 16, and 16 where there are 32."""
    return Knob(
        name="dtype",
        what="number format of the weights and of the arithmetic",
        place="config",
        baseline=config.dtype,
        values=("bfloat16" if now in ("float32", "float64") else "float32",),
        control=True,
    )


def variable(name: str, env: Mapping[str, str]) -> str | None:
    """An environment variable as the engine's process will see it."""
    return env.get(name, os.environ.get(name))


def option(config: EngineConfig, key: str, default: Value = None) -> Any:
    """What an option stands at; a dot goes into a mapping."""
    found: Any = config.options
    for part in key.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return default
        found = found[part]
    return found


def weights_format(model: str) -> str | None:
    """Number format of a model directory's weights, as its configuration has it; None if it does not say."""
    about = model_configuration(model)
    for part in (about, about.get("text_config")):
        if isinstance(part, dict) and (part.get("dtype") or part.get("torch_dtype")):
            return str(part.get("dtype") or part.get("torch_dtype")).removeprefix("torch.")
    return None


def model_configuration(model: str) -> dict[str, Any]:
    """A model directory's ``config.json``; empty where there is none to read."""
    try:
        about = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return about if isinstance(about, dict) else {}
