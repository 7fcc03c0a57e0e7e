"""Real inputs of modules, caught while the engine answers, so that each can be called again by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves, tree_map


class Caught(NamedTuple):
    """One call of a module, to be made again.

    Attributes:
        module: which.
        args, kwargs: what it was given; tensors are copies.
    """

    module: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __call__(self) -> Any:
        """What the module gives."""
        return self.module(*self.args, **self.kwargs)

    @property
    def rows(self) -> int:
        """Length of the first tensor it was given; 0 without one."""
        tensors = [leaf for leaf in tree_leaves((self.args, self.kwargs)) if torch.is_tensor(leaf) and leaf.ndim]
        return len(tensors[0]) if tensors else 0


@contextmanager
def catching(model: Any, wanted: Mapping[str, Sequence[str]]) -> Iterator[dict[str, list[Caught]]]:
    """Within the block every call of the wanted modules is caught.

    Modules of a group that are given tensors of the same shapes share one copy of them, that of the first: a unit then
    needs the memory of one block's input and not of all. How long a call takes does not depend on the values.

    Args:
        model: holds the modules.
        wanted: by the name of a group, the qualified names of its modules.

    Yields:
        By group the calls, in their order.
    """
    calls: dict[str, list[Caught]] = {name: [] for name in wanted}
    kept: dict[tuple[str, str], tuple[Any, Any]] = {}

    def hook(group: str) -> Any:
        def caught(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            key = (group, _signature((args, kwargs)))
            if key not in kept:
                kept[key] = tree_map(_copied, (args, kwargs))
            calls[group].append(Caught(module, *kept[key]))

        return caught

    handles = [
        model.get_submodule(module).register_forward_pre_hook(hook(group), with_kwargs=True)
        for group, modules in wanted.items()
        for module in modules
    ]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def kind_of(module: Any) -> tuple[Any, ...]:
    """Equal for modules of one class whose weights have the same shapes: they share graphs."""
    return (type(module), *(tuple(parameter.shape) for parameter in module.parameters()))


def _copied(leaf: Any) -> Any:
    return leaf.clone() if torch.is_tensor(leaf) else leaf


def _signature(tree: Any) -> str:
    leaves = tree_leaves(tree)
    return repr([(tuple(leaf.shape), leaf.dtype) if torch.is_tensor(leaf) else leaf for leaf in leaves])
