"""What it takes that checkpoints follow each other: engines that are started for each, or the same engines for all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from proctor.capacity.figures import Figure
from proctor.capacity.model import Model
from proctor.capacity.overhead import READ_AHEAD_BUFFERS
from proctor.capacity.weights import NOT_KNOWN
from proctor.spec import RunSpec
from proctor.spec.engine import OpenAIEngineSpec, ScriptedEngineSpec, TransformersEngineSpec


@dataclass(frozen=True, slots=True)
class Course:
    """How engines come to their checkpoints.

    Attributes:
        starts: starts of engines that a run waits for, one after another, if no checkpoint is known yet.
        swaps: swaps that it waits for besides, in the same case.
        text: the same in words.
        beside: a second engine starts before each swap, while the first one works.
    """

    starts: int
    swaps: int
    text: str
    beside: bool = False

    def seconds(self, start: float, swap: float, work: float) -> float:
        """Seconds that a run waits for its engines.

        Args:
            start: seconds of a start.
            swap: seconds of a swap, with its proof.
            work: seconds that the engines work for one checkpoint: as long as that, nobody waits for a second engine.
        """
        behind = max(0.0, start - work) if self.beside else 0.0
        return self.starts * start + self.swaps * (swap + behind)


def in_sequence(spec: RunSpec) -> bool:
    """Whether engines go from checkpoint to checkpoint."""
    return spec.engine.mode == "sequential" and len(spec.engine.checkpoints) > 1


def course(spec: RunSpec, left: int | None = None) -> Course:
    """How the engines of a run come to their checkpoints.

    Args:
        spec: the run.
        left: checkpoints that have rows to do; None: all. No engine is started for the others.
    """
    checkpoints = len(spec.engine.checkpoints)
    left = checkpoints if left is None else left
    done = "" if left == checkpoints else f", {checkpoints - left} of {checkpoints} having no rows to do"
    if not left:
        return Course(0, 0, "no checkpoint has rows to do")
    if not in_sequence(spec) or left == 1:
        at_once = min(spec.stream.checkpoints_at_once, left)
        return Course(math.ceil(left / at_once), 0, f"{at_once} of {left} checkpoints at a time{done}")
    swaps = left - 1
    if spec.engine.reference == "beside":
        text = f"{swaps} checkpoints swapped in; where one is not known, a second engine starts beside{done}"
        return Course(1, swaps, text, beside=True)
    return Course(left, 0, f"if no checkpoint is known yet; if all are, 1 start and {swaps} swaps{done}")


def start_seconds(spec: RunSpec, given: float | None) -> float | None:
    """Seconds that an engine takes to start: as given, or as the scripted engine is told; none to speak of where a
    server runs the model; None if not known."""
    if given is not None:
        return given
    if isinstance(spec.engine, ScriptedEngineSpec):
        return spec.engine.load_seconds
    return 0.0 if isinstance(spec.engine, OpenAIEngineSpec) else None


def swap_seconds(spec: RunSpec, given: float | None) -> float | None:
    """Seconds that an engine takes to take over a checkpoint and to prove it: as given, none to speak of for the
    scripted engine, None if not known."""
    if given is not None:
        return given
    return 0.0 if isinstance(spec.engine, (ScriptedEngineSpec, OpenAIEngineSpec)) else None


def swap_memory(spec: RunSpec, models: Sequence[Model], process: float) -> list[Figure]:
    """Memory that one engine takes on its node besides its own, where checkpoints follow each other in it.

    Args:
        spec: the run.
        models: of its checkpoints; empty for engines that load none.
        process: bytes of the engine's own process.
    """
    if not in_sequence(spec):
        return []
    found = []
    if following := models[1:]:
        largest = max(following, key=lambda model: model.weights.stored_bytes)
        stored = float(largest.weights.stored_bytes)
        known = all(model.weights.source != NOT_KNOWN for model in following)
        formula = "the largest after the first, as its files have it, in shared memory; 4 x 16 MiB to read it"
        ahead = stored + min(stored, READ_AHEAD_BUFFERS) if known else None
        found.append(Figure("weights read ahead", ahead, "B", formula, "config"))
        converted = max(model.weights.converted_bytes(model.dtype) for model in following)
        if isinstance(spec.engine, TransformersEngineSpec) and converted:
            formula = f"those that are not {largest.dtype} in the files, beside those that are in use"
            found.append(Figure("weights converted", converted, "B", formula, "config"))
    if spec.engine.reference == "beside":
        found.append(Figure("a second engine's process", process, "B", "engine.reference: beside", "computed"))
    return found
