"""The agreement part of a bench: every target against eager, level by level, then the encoder with all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from proctor.compile.answers import as_probe, gate_answers
from proctor.compile.arms import Arms
from proctor.compile.captured import Caught, kind_of
from proctor.compile.gate import LEVELS, gate, gate_target, in_place
from proctor.compile.loaded import Loaded, Scene
from proctor.compile.model import ANSWERS, ENCODER, Level, ProbeAnswers
from proctor.compile.orders import Order, Piece
from proctor.engines.prepare import Prepared
from proctor.rows import Response, told


def compared(
    order: Order,
    loaded: Loaded,
    scenes: Sequence[Scene],
    arms: Arms,
    ready: Mapping[str, Mapping[str, Sequence[Caught]]],
) -> Iterator[Piece]:
    """Agreements of the targets that could be compiled. To come last: the compiler then forgets what it has compiled.

    Of the modules of a target that are of one kind the first and the last take part.

    Args:
        order, loaded, scenes, arms: of the bench.
        ready: by target and shape, calls as they are when the target is compiled.
    """
    arms.to(())
    levels = levels_of(order.how.backend)
    if not levels:
        yield Piece(notes=(f"outputs were not compared: {order.how.backend} is none of {', '.join(LEVELS)}",))
        return
    targets = [target for target in loaded.targets if target.name in arms.names]
    for target in targets:
        yield Piece(doing=f"comparing outputs of {target.name}")
        captured = {shape: some_of(made) for shape, made in ready[target.name].items()}
        calls = {shape: made for shape, made in captured.items() if made}
        yield _told_of(target.name, lambda t=target, c=calls: gate_target(loaded.model, t, c, levels, order.how))
    captured = {scene.shape.name: scene.calls[ENCODER] for scene in scenes if ENCODER in scene.calls}
    if captured:
        yield Piece(doing="comparing outputs of the encoder")
        whole = in_place(loaded.model, targets, order.how)
        yield _told_of(ENCODER, lambda: gate(ENCODER, captured, whole, levels[-1:]))


def compared_answers(loaded: Loaded, scenes: Sequence[Scene], arms: Arms) -> ProbeAnswers:
    """Answers to every row of the units, with all targets compiled and with none."""
    batches: list[list[Prepared]] = []
    names: dict[int, str] = {}
    for scene in scenes:
        batch = [_numbered(row, len(names) + number) for number, row in enumerate(scene.rows)]
        names.update({row.request.id: f"row {number} of {scene.shape.name}" for number, row in enumerate(batch)})
        batches.append(batch)

    def ask(compiled: Sequence[str]) -> list[Response]:
        arms.to(compiled)
        return [response for batch in batches for response in loaded.hf.answers(batch, lambda _: None)]

    dtype = str(loaded.model.dtype).removeprefix("torch.")
    return gate_answers(ANSWERS, names, lambda: ask(()), lambda: ask(arms.names), dtype)


def _numbered(row: Prepared, number: int) -> Prepared:
    return Prepared(replace(as_probe(row.request), id=number), row.text, row.images)


def levels_of(backend: str) -> tuple[Level, ...]:
    """The levels up to that of a backend; none for a backend that is none of them."""
    names = [str(level) for level in LEVELS]
    return LEVELS[: names.index(backend) + 1] if backend in names else ()


def some_of(calls: Sequence[Caught]) -> list[Caught]:
    """The first and the last call of each kind of module, in their order."""
    kinds: dict[Any, list[Caught]] = {}
    for call in calls:
        kinds.setdefault(kind_of(call.module), []).append(call)
    chosen = {id(call) for members in kinds.values() for call in (members[0], members[-1])}
    return [call for call in calls if id(call) in chosen]


def _told_of(name: str, work: Any) -> Piece:
    try:
        return Piece(agreements=tuple(work()))
    except Exception as error:  # a module that fails as it was written, or a compiler that does
        return Piece(notes=(f"{name}: outputs could not be compared: {told(error)}",))
