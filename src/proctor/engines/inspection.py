"""What the installed package makes of an engine's switches, found by reading its sources; nothing is imported."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Literal

import msgspec

from proctor.engines.base import EngineConfig
from proctor.engines.surroundings import Site, look

HOMES = {
    "transformers": "proctor.engines.transformers_inspection",
    "vllm": "proctor.engines.vllm_inspection",
}


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """One switch of an engine.

    Attributes:
        name: as it is written: an option, ``compilation_config.x``, or an environment variable.
        exists: whether the installed version knows it.
        effect: ``works`` if its value is read by code that runs here, ``no effect`` if the sources say or show that
            it has none, else ``unknown``.
        why: in one line.
        where: ``file:line`` inside the package, of what says so.
    """

    name: str
    exists: bool
    effect: Literal["works", "no effect", "unknown"] = "unknown"
    why: str = ""
    where: str = ""


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """Switches that do not go together.

    Attributes:
        switches: with all of these set ...
        loser: ... this one has no effect.
        what: how that comes about, in one line.
        where: ``file:line`` of every step.
    """

    switches: tuple[str, ...]
    loser: str
    what: str
    where: tuple[str, ...]


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """What was found.

    Attributes:
        versions: of the interpreter and of the packages that matter, by name.
        device: what the engine would run on: ``cpu`` or ``cuda``; empty where that is not ours to know.
        switches: every switch that was looked for.
        conflicts: those that were found.
    """

    versions: dict[str, str] = {}
    device: str = ""
    switches: tuple[Switch, ...] = ()
    conflicts: tuple[Conflict, ...] = ()

    def switch(self, name: str) -> Switch:
        """The switch of that name; one that does not exist if it was not looked for."""
        absent = Switch(name=name, exists=False, why="not looked for")
        return next((switch for switch in self.switches if switch.name == name), absent)


def inspect(config: EngineConfig, env: Mapping[str, str] | None = None, site: Site | None = None) -> Inspection:
    """Reads the sources of the engine's package.

    Args:
        config: the engine's configuration.
        env: environment variables that its process gets on top of this process's.
        site: what is installed where it runs, from `proctor.engines.surroundings.look`; looked up if not given.
    """
    here = site or look(config.kind)
    home = HOMES.get(config.kind)
    if home is None:
        return Inspection(versions=here.versions if config.kind == "scripted" else {})
    found: Inspection = import_module(home).inspection(config, env or {}, here)
    return found
