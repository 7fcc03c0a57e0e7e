"""Tasks: what is asked of the model, how its answer is read, and how it is marked."""

from __future__ import annotations

from proctor.tasks.base import Confusion, Metric, ParseError, Scores, Summary, Task

__all__ = ["Confusion", "Metric", "ParseError", "Scores", "Summary", "Task"]
