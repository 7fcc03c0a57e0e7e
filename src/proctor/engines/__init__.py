"""Engines: each runs a model and knows nothing of Ray, files or scoring."""

from __future__ import annotations

from proctor.engines.base import Engine, EngineConfig, Fault, Feed, IterFeed, Reporter, SwapRefused

__all__ = ["Engine", "EngineConfig", "Fault", "Feed", "IterFeed", "Reporter", "SwapRefused"]
