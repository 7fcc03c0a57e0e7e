"""The work of one process of a bench, in its order: compile target by target, time by rounds, look at what it cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from proctor.compile.arms import Arms, ready_calls
from proctor.compile.captured import Caught
from proctor.compile.compared import compared, compared_answers
from proctor.compile.costs import dispatch_seconds, memory_of, operators, wait_for
from proctor.compile.loaded import Loaded, Scene
from proctor.compile.model import ANSWERS, ENCODER, ArmName, Compilation, Dispatch
from proctor.compile.orders import Order, Piece
from proctor.compile.timing import Arm, Call, Clock, CudaClock, MonotonicClock, Subject, calibrated, interleaved
from proctor.engines.compiling.targets import Target
from proctor.rows import UserError

_WARM_CALLS = 2


def benched(order: Order, loaded: Loaded, scenes: Sequence[Scene]) -> Iterator[Piece]:
    """Everything that one process measures, a piece at a time."""
    yield from Benched(order, loaded, scenes).pieces()


class Benched:
    """One process's work on one model; see `benched`."""

    def __init__(self, order: Order, loaded: Loaded, scenes: Sequence[Scene]) -> None:
        self._order, self._loaded, self._scenes = order, loaded, scenes
        self.arms = Arms(loaded.model, order.how)
        self._device = loaded.device
        self._wall: Clock = MonotonicClock(lambda: wait_for(self._device))
        self._clock: Clock = self._wall
        if self._device.type == "cuda":
            import torch

            self._clock = CudaClock(torch.cuda)
        self._compilations: dict[str, Compilation] = {}
        self._ready: dict[str, dict[str, list[Caught]]] = {}

    def pieces(self) -> Iterator[Piece]:
        """See `benched`."""
        for target in self._wanted():
            yield Piece(doing=f"compiling {target.name}")
            yield self._compiled(target)
        if not self.arms.names:
            yield Piece(notes=("none of the targets could be compiled: nothing was timed",))
            return
        if self._order.process == 0:
            yield Piece(doing="counting operators")
            yield Piece(dispatches=tuple(self._dispatches()))
        yield from self._timed()
        yield self._seen_since()
        if self._order.process == 0 and self._order.agreement:
            yield Piece(doing="comparing answers")
            yield Piece(answers=(compared_answers(self._loaded, self._scenes, self.arms),))
            yield from compared(self._order, self._loaded, self._scenes, self.arms, self._ready)

    def _wanted(self) -> list[Target]:
        """What there is to compile: everything for the wholes, else what is timed."""
        everything = self._times(ENCODER) or self._times(ANSWERS)
        return [target for target in self._loaded.targets if everything or self._times(target.name)]

    def _times(self, name: str) -> bool:
        return not self._order.only or name in self._order.only

    def _compiled(self, target: Target) -> Piece:
        """First calls of a target at all shapes, and what the compiler made of them."""
        scenes = [scene for scene in self._scenes if target.name in scene.calls]
        if not scenes:
            return Piece(notes=(f"{target.name}: not called by any row of the sample",))
        eager = sum(self._warm_seconds(scene.calls[target.name]) for scene in scenes)
        self.arms.add(target)
        ready = ready_calls(self._loaded, scenes, target, self.arms)
        self._ready[target.name] = ready
        before = memory_of(self._device)
        self.arms.to((target.name,))
        try:
            seconds = sum(self._wall.seconds(partial(_all, ready[scene.shape.name]), 1) for scene in scenes)
        except UserError as error:
            seen = self.arms.seen(target.name)
            self.arms.drop(target.name)
            failed = Compilation(
                target.name, self._order.process, self._order.cache, 0.0, 0, breaks=(*seen.breaks, error.what)
            )
            return Piece(compilations=(failed,), notes=(f"left out: {error.what}",))
        seen = self.arms.seen(target.name)
        made = Compilation(
            target=target.name,
            process=self._order.process,
            cache=self._order.cache,
            seconds=max(0.0, seconds - eager),
            graphs=seen.graphs,
            memory=memory_of(self._device) - before,
        )
        self._compilations[target.name] = made
        return Piece(compilations=(self._with_seen(made),))

    def _warm_seconds(self, calls: Sequence[Caught]) -> float:
        self.arms.to(())
        return min(self._wall.seconds(partial(_all, calls), 1) for _ in range(_WARM_CALLS))

    def _with_seen(self, made: Compilation) -> Compilation:
        seen = self.arms.seen(made.target)
        names = ("graphs", "breaks", "recompiles", "fallbacks", "cache_hits", "cache_misses")
        return replace(made, **{name: getattr(seen, name) for name in names})

    def _dispatches(self) -> Iterator[Dispatch]:
        seconds = dispatch_seconds(self._order.how, self._device)
        for name in self.arms.names:
            scene = next(scene for scene in self._scenes if name in scene.calls)
            found: dict[str, int | None] = {}
            self.arms.to(())
            found["eager"] = operators(partial(_all, scene.calls[name]), self._device)
            self.arms.to((name,))
            found["compiled"] = operators(partial(_all, self._ready[name][scene.shape.name]), self._device)
            counted = {arm: number for arm, number in found.items() if number is not None}
            yield Dispatch(name, seconds, counted or None)

    def _timed(self) -> Iterator[Piece]:
        yield Piece(doing="warming up")
        subjects = list(self._subjects())
        order = self._order
        for number, timings in interleaved(subjects, order.rounds, order.warmups, order.process):
            doing = f"round {number + 1} of {order.rounds}" if number >= 0 else "warming up"
            yield Piece(doing=doing, timings=tuple(timings))

    def _subjects(self) -> Iterator[Subject]:
        names = self.arms.names
        for scene in self._scenes:
            for name in filter(self._times, names):
                if name in scene.calls:
                    calls = (scene.calls[name], self._ready[name][scene.shape.name])
                    yield calibrated(self._subject(name, scene, (name,), *map(_calling, calls)))
            if ENCODER in scene.calls and self._times(ENCODER):
                call = _calling(scene.calls[ENCODER])
                yield calibrated(self._subject(ENCODER, scene, names, call, call))
        for scene in self._scenes if self._order.answers and self._times(ANSWERS) else ():
            answers = partial(self._loaded.answers, scene.rows)
            subject = self._subject(ANSWERS, scene, names, answers, answers)
            yield dataclasses.replace(subject, clock=self._wall, every=self._order.answers)

    def _subject(self, target: str, scene: Scene, on: tuple[str, ...], eager: Call, compiled: Call) -> Subject:
        arms: dict[ArmName, Arm] = {
            "eager": Arm(partial(self.arms.to, ()), eager),
            "compiled": Arm(partial(self.arms.to, on), compiled),
        }
        return Subject(target, scene.shape.name, arms, self._clock)

    def _seen_since(self) -> Piece:
        """What the compiler did in all: shapes that came up while rounds ran may have been compiled then."""
        seen = [self._with_seen(made) for made in self._compilations.values()]
        late = []
        for made, now in zip(self._compilations.values(), seen, strict=True):
            if more := (now.graphs or 0) - (made.graphs or 0):
                late.append(f"{now.target}: {more} more graphs were compiled while process {now.process} timed it")
        return Piece(compilations=tuple(seen), notes=tuple(late))


def _calling(calls: Sequence[Caught]) -> Call:
    return partial(_all, calls)


def _all(calls: Sequence[Caught]) -> Any:
    """Makes the calls; the outputs of the last one."""
    outcome = None
    for call in calls:
        outcome = call()
    return outcome
