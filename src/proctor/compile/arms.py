"""Targets that are compiled once and then switched: the same model, now eager and now compiled."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from proctor.compile.captured import Caught
from proctor.compile.loaded import Loaded, Scene
from proctor.engines.compiling.apply import compile_in_place
from proctor.engines.compiling.settings import Compile
from proctor.engines.compiling.targets import Target
from proctor.engines.compiling.watch import Seen, Watch

_CALL = "_compiled_call_impl"
_CHANGED = (_CALL, "config")
State = dict[tuple[Any, str], Any]
"""Attributes of modules."""


class Arms:
    """Switches targets of one model. Before anything is switched all of them are eager.

    Args:
        model: the model, with nothing compiled.
        how: targets are compiled.
    """

    def __init__(self, model: Any, how: Compile) -> None:
        self._model, self._how = model, how
        self._targets: dict[str, Target] = {}
        self._changes: dict[str, State] = {}
        self._before: dict[str, State] = {}
        self._watches: dict[str, Watch] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Targets that can be switched."""
        return tuple(self._targets)

    def add(self, target: Target) -> None:
        """Prepares a target, which its first call compiles, and leaves it on, and the others off."""
        self.to(())
        before = self._state()
        self._watches[target.name] = compile_in_place(self._model, [target], self._how)
        after = self._state()
        self._changes[target.name] = {key: value for key, value in after.items() if value is not before[key]}
        self._before[target.name] = {key: before[key] for key in self._changes[target.name]}
        self._targets[target.name] = target

    def drop(self, name: str) -> None:
        """Forgets a target that cannot be compiled."""
        self.to(())
        del self._targets[name]

    def to(self, compiled: Collection[str]) -> None:
        """These targets run compiled code from now on, all others their own; whatever was compiled is kept."""
        for name in self._targets:
            self._set(self._before[name])
        for name in compiled:
            self._set(self._changes[name])

    def bare(self, name: str) -> bool:
        """Gets a target ready as for compiled code, all others off, but has it run its own.

        Returns:
            Whether that makes any difference: whether its modules, or those around them, may be given other inputs.
        """
        self.to(())
        ready = {key: value for key, value in self._changes[name].items() if key[1] != _CALL}
        self._set(ready)
        return bool(ready)

    def seen(self, name: str) -> Seen:
        """What the compiler has done for a target so far."""
        return self._watches[name].counters[name]

    @staticmethod
    def _set(state: State) -> None:
        for (module, attribute), value in state.items():
            setattr(module, attribute, value)

    def _state(self) -> State:
        """What compiling in place changes of a module: its call, and which attention its configuration names.

        The very objects are put back later: a configuration made anew might not pass the guards of compiled code.
        """
        modules = list(self._model.modules())
        return {(module, name): getattr(module, name, None) for module in modules for name in _CHANGED}


def ready_calls(loaded: Loaded, scenes: Sequence[Scene], target: Target, arms: Arms) -> dict[str, list[Caught]]:
    """By shape, calls of a target's modules with what they are given when the target is compiled.

    Args:
        loaded, scenes: the model, and units in which the target is called.
        target: of `arms`.
        arms: after this all are off.
    """
    differs = arms.bare(target.name)
    made = {}
    for scene in scenes:
        again = loaded.inputs(scene, target) if differs else []
        made[scene.shape.name] = again or scene.calls[target.name]
    arms.to(())
    return made
