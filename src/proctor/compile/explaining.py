"""Where the graphs of a vision encoder break, module by module, without timing and without generating code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch._dynamo as dynamo

from proctor.compile.arms import Arms, ready_calls
from proctor.compile.captured import Caught, kind_of
from proctor.compile.loaded import Loaded, Scene
from proctor.compile.model import ENCODER
from proctor.compile.orders import Explained, Piece
from proctor.engines.compiling.settings import Compile
from proctor.rows import line_of, told


def explained(loaded: Loaded, scenes: Sequence[Scene], how: Compile) -> Iterator[Piece]:
    """Explains one module of each kind in each target, with the inputs of the first unit, and the encoder as a whole.

    A target is traced as the engine compiles it, so without the breaks that this avoids; the encoder as it is when
    nothing is compiled. Modules are of one kind if they are of one class and their weights have the same shapes.
    """
    names = {id(module): name for name, module in loaded.model.named_modules()}
    arms, scene = Arms(loaded.model, how), scenes[0]
    for target in loaded.targets:
        if target.name in scene.calls:
            arms.add(target)
            ready = ready_calls(loaded, [scene], target, arms)[scene.shape.name]
            arms.bare(target.name)
            for call, like in _kinds(ready):
                yield Piece(doing=f"tracing {names[id(call.module)]}")
                yield Piece(explained=(_explain(call, target.name, names[id(call.module)], like),))
            arms.drop(target.name)
    for call, like in _kinds(scene.calls.get(ENCODER, [])):
        yield Piece(doing="tracing the encoder")
        yield Piece(explained=(_explain(call, "", names[id(call.module)], like),))


def _kinds(calls: Sequence[Caught]) -> list[tuple[Caught, int]]:
    """The first call of each kind of module, with how many modules there are of it."""
    kinds: dict[tuple[Any, ...], list[Caught]] = {}
    for call in {id(call.module): call for call in calls}.values():
        kinds.setdefault(kind_of(call.module), []).append(call)
    return [(members[0], len(members)) for members in kinds.values()]


def _explain(call: Caught, target: str, name: str, like: int) -> Explained:
    dynamo.reset()
    try:
        found = dynamo.explain(call.module)(*call.args, **call.kwargs)
    except Exception as error:  # whatever the tracer does not know
        return Explained(target, name, like, 0, failed=told(error))
    finally:
        dynamo.reset()
    return Explained(target, name, like, found.graph_count, tuple(map(_line, found.break_reasons)))


def _line(reason: Any) -> str:
    """The first line of a reason, and the model's own line that it comes from."""
    text = line_of(str(reason.reason).strip().splitlines()[0])
    if not reason.user_stack:
        return text
    frame = reason.user_stack[-1]
    return f"{text}, at {frame.filename.rpartition('site-packages/')[2]}:{frame.lineno} in {frame.name}"
