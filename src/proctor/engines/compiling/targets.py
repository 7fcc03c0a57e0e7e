"""Finds the parts of a model that can be compiled apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from proctor.engines.compiling.presets import ATTRIBUTES, BLOCKS, Dimensions, Part, preset_of
from proctor.rows import UserError

if TYPE_CHECKING:
    from torch import nn

WHERE = "engine.compile.targets"


class Target(NamedTuple):
    """Modules that are compiled together: they share graphs, and one limit of recompilations.

    Attributes:
        name: of a preset's part, or the pattern that chose it.
        modules: qualified names in ``model.named_modules()``.
        dynamic: of the inputs that are named, the dimensions that differ from call to call (argument of ``forward`` to
            dimensions); the others are taken to be constants. Of inputs that are not named any dimension may differ.
    """

    name: str
    modules: tuple[str, ...]
    dynamic: Dimensions = MappingProxyType({})


def encoder_of(model: Any) -> str:
    """Qualified name of the vision encoder; empty if there is none, or if the model is itself one."""
    names = {name: type(module).__name__ for name, module in model.named_modules()}
    for name, kind in names.items():
        if preset_of(kind) is not None:
            return name
    return next((name for name in names if name.rpartition(".")[2] in ATTRIBUTES), "")


def find_targets(model: Any, wanted: Sequence[str] | None = None) -> list[Target]:
    """The targets of a model, in the order in which they run as far as that is known.

    A family that there is a preset for has the preset's parts. Any other has its repeated blocks: every list of at
    least two modules of one class inside the vision encoder (where none is found: outside the language model); the
    longest is called ``blocks``, the others by their qualified names.

    No part of a language model is a target. What is compiled at the start is the encoder's calls; a decoder's differ
    with every token, since its cache grows. Nor are such parts compared with eager by the bench, which catches the
    calls of an encoder.

    Args:
        model: a ``torch.nn.Module``.
        wanted: names of targets, or patterns (``fnmatch``) of module names, each of which is one target; None or empty:
            every target.

    Raises:
        UserError: a name or pattern that fits nothing, with what there is; or one that takes in more than the vision
            side of the model; or targets that overlap; or a model without anything to compile.
    """
    known = _preset_targets(model) or _repeated(model)
    if not wanted:
        if not known:
            raise UserError("the model has no repeated blocks to compile", where=WHERE, fix="name modules by a pattern")
        return known
    found = [_chosen(model, known, name) for name in dict.fromkeys(wanted)]
    _check_inside(model, found)
    _check_apart(found)
    return found


def _preset_targets(model: nn.Module) -> list[Target]:
    home = encoder_of(model)
    encoder = model.get_submodule(home)
    preset = preset_of(type(encoder).__name__)
    if preset is None:
        return []
    names = [name for name, _ in model.named_modules()]
    found = [Target(part.name, tuple(_modules(part, names, home)), part.dynamic) for part in preset.parts]
    return [target for target in found if target.modules]


def _modules(part: Part, names: Iterable[str], home: str) -> Iterator[str]:
    for name in names:
        if part.beside:
            if name.rpartition(".")[2] == part.modules:
                yield name
        elif name.startswith(home) and _fits(name.removeprefix(home).removeprefix("."), part.modules):
            yield name


def _fits(name: str, pattern: str) -> bool:
    # Part by part: a star of `fnmatch` would also stand for a dot, so that the blocks were all that is in them.
    parts, wanted = name.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def _repeated(model: nn.Module) -> list[Target]:
    from torch import nn

    home = encoder_of(model)
    language = _language_model(model, home)
    lists: dict[str, tuple[str, ...]] = {}
    for name, module in model.named_modules():
        inside = _within(name, home) and not any(_within(name, part) for part in language)
        nested = any(name.startswith(f"{other}.") for other in lists)
        if isinstance(module, nn.ModuleList) and inside and not nested and _alike(module):
            lists[name] = tuple(f"{name}.{number}" for number in range(len(module)))
    longest = max(lists, key=lambda name: len(lists[name]), default="")
    # A list of a bare encoder may be called `blocks` and not be the longest.
    return [
        Target(BLOCKS if name == longest else f"{name}.*" if name == BLOCKS else name, modules)
        for name, modules in lists.items()
    ]


def _within(name: str, outer: str) -> bool:
    return not outer or name == outer or name.startswith(f"{outer}.")


def _language_model(model: Any, encoder: str) -> list[str]:
    """Qualified names of the decoder and of the head that makes tokens of its states, as far as the model tells.

    ``get_decoder`` and ``get_output_embeddings`` are those of transformers' models. A bare encoder calls itself its
    decoder, and some models what holds the encoder too: that is no answer.
    """
    asked = [getattr(model, name)() for name in ("get_decoder", "get_output_embeddings") if hasattr(model, name)]
    parts = [part for part in asked if part is not None]
    names = [name for name, module in model.named_modules() if name and any(module is part for part in parts)]
    return [name for name in names if not (encoder and _within(encoder, name))]


def _alike(modules: nn.ModuleList) -> bool:
    return len(modules) > 1 and len({type(module) for module in modules}) == 1


def _chosen(model: nn.Module, known: Sequence[Target], wanted: str) -> Target:
    by_name: Mapping[str, Target] = {target.name: target for target in known}
    if wanted in by_name:
        return by_name[wanted]
    fitting = [name for name, _ in model.named_modules() if name and fnmatchcase(name, wanted)]
    outermost = tuple(
        name for name in fitting if not any(name.startswith(f"{other}.") for other in fitting if other != name)
    )
    if not outermost:
        there = ", ".join(by_name) or "none by name"
        raise UserError(
            f"no target and no module of the model is called {wanted!r}",
            where=WHERE,
            fix=f"the targets are {there}; a pattern is one of module names, such as {_example(model)}",
        )
    return Target(wanted, outermost)


def _example(model: nn.Module) -> str:
    names = [name for name, _ in model.named_modules() if name]
    return next((f"{name.rpartition('.')[0]}.*" for name in names if name.rpartition(".")[2] == "0"), "*.mlp")


def _check_inside(model: nn.Module, targets: Sequence[Target]) -> None:
    """What has the encoder in it has the language model in it as well."""
    encoder = encoder_of(model)
    language = _language_model(model, encoder)
    for wanted, name in [(target.name, name) for target in targets for name in target.modules]:
        if encoder.startswith(f"{name}."):
            what = f"{wanted} takes in {name}, which is more than the vision encoder ({encoder})"
            raise UserError(what, where=WHERE, fix=f"name parts of it, such as {encoder}.*")
        part = next((part for part in language if _within(name, part) or _within(part, name)), None)
        if part is not None:
            what = f"{wanted} takes in {name}, but {part} is the language model, which is not compiled here"
            fix = f"name parts of the vision encoder, such as {encoder}.*" if encoder else f"leave {wanted} out"
            raise UserError(what, where=WHERE, fix=fix)


def _check_apart(targets: Sequence[Target]) -> None:
    owners: dict[str, str] = {}
    for target in targets:
        for name in target.modules:
            if name in owners:
                raise _overlap(owners[name], target.name, name)
            owners[name] = target.name
    for name, owner in owners.items():
        for outer, other in owners.items():
            if name.startswith(f"{outer}."):
                raise _overlap(other, owner, name)


def _overlap(one: str, other: str, name: str) -> UserError:
    what = f"{name} is in two targets, {one} and {other}" if one != other else f"{name} is twice in {one}"
    return UserError(what, where=WHERE, fix="a module is compiled once: leave one of them out")
