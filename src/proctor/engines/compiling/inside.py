"""The compiled parts of the model that an engine serves: compiled before the first row, told of as they change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from proctor.engines.compiling.apply import compile_in_place, follow
from proctor.engines.compiling.settings import Compile
from proctor.engines.compiling.targets import Target, find_targets
from proctor.engines.compiling.watch import Seen
from proctor.engines.news import FELL_BACK, tell
from proctor.engines.probes import probes
from proctor.rows import Request

_PICTURES = ("image", "two images")
"""Which of the fixed questions have one image and two: what is compiled for them serves any number."""


class CompiledParts:
    """What is compiled of one model, and of those that take its place.

    Args:
        model: a loaded model.
        how: what to compile, and how.

    Raises:
        UserError: there is no such target.
    """

    def __init__(self, model: Any, how: Compile) -> None:
        self.targets: list[Target] = find_targets(model, how.targets or None)
        self.watch = compile_in_place(model, self.targets, how)
        self._how = how

    def moved(self, old: Any, new: Any) -> CompiledParts:
        """The same code runs `new` from now on, a model of the same architecture."""
        follow(new, self.targets, old)
        return self

    def warm_up(self, answer: Callable[[list[Request]], None]) -> None:
        """Compiles by having pictures answered that are made up, and tells what that took.

        Args:
            answer: runs requests through the model.

        Raises:
            UserError: a target cannot be compiled.
        """
        for name, request in probes():
            if name in _PICTURES:
                answer([replace(request, sampling=replace(request.sampling, max_tokens=1))])
        changes = self.watch.changes()
        total = sum(changes.values(), Seen())
        tell(
            "compile.done",
            "; ".join(f"{name}: {_in_words(seen)}" for name, seen in changes.items()) or "nothing was compiled",
            seconds=total.seconds,
            targets=", ".join(target.name for target in self.targets),
            backend=self._how.backend,
            graphs=total.graphs,
            breaks=len(total.breaks),
            cache_hits=total.cache_hits,
            cache_misses=total.cache_misses,
        )
        self._tell(changes, recompiled=False)

    def tell_changes(self) -> None:
        """Tells what the compiler has done since this was called last."""
        if changes := self.watch.changes():
            self._tell(changes)

    def _tell(self, changes: dict[str, Seen], *, recompiled: bool = True) -> None:
        for name, seen in changes.items():
            if recompiled and seen.graphs:
                reason = seen.recompiles[0] if seen.recompiles else "inputs of a new kind"
                tell("compile.again", f"{name}: {reason}", seconds=seen.seconds, target=name, graphs=seen.graphs)
            for reason in seen.fallbacks:
                after = self._how.recompile_limit
                tell(FELL_BACK, f"{name}: {reason}", action="runs eagerly", target=name, recompile_limit=after)


def _in_words(seen: Seen) -> str:
    text = f"{seen.graphs} graph{'s' * (seen.graphs != 1)} in {seen.seconds:.1f} s"
    if seen.cache_hits:
        text += f", {seen.cache_hits} from the cache"
    if seen.breaks:
        text += f", {len(seen.breaks)} breaks, the first by {seen.breaks[0]}"
    return text
