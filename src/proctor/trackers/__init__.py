"""Experiment trackers (MLflow, Weights & Biases, Comet, TensorBoard, JSON lines) behind one port that can never hold a
run up: everything is on disk first, and each library runs in a process of its own."""

from __future__ import annotations

from proctor.trackers.outlet import Closed
from proctor.trackers.sync import sync
from proctor.trackers.trackers import Trackers, check_trackers

__all__ = ["Closed", "Trackers", "check_trackers", "sync"]
