"""Compiles targets in place, and takes that back.

As with ``torch.nn.Module.compile`` the module stays the object that it is: its ``__call__`` goes to compiled code,
names in the state dict and hooks are as before, and what surrounds it is left alone. Unlike there, all modules of a
target share one region of the compiler: blocks that are alike share graphs, and a target's recompilations count
against its own limit, not against that of another target whose modules happen to be of the same class.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch
from torch._dynamo.exc import (
    BackendCompilerFailed,
    FailOnRecompileLimitHit,
    InternalTorchDynamoError,
    UncapturedHigherOrderOpError,
    Unsupported,
)
from torch._dynamo.exc import UserError as DynamoUserError
from torch.nn.modules import module as global_hooks

from proctor.engines.compiling.settings import Compile
from proctor.engines.compiling.targets import Target
from proctor.engines.compiling.watch import Owner, Seen, Watch, calls, one_line
from proctor.rows import UserError

_NO_COMPILER = "InvalidCxxCompiler"
_INSTALL = "install a C++ compiler such as g++, or name one in the environment variable CXX"
_CANNOT = (
    BackendCompilerFailed,
    DynamoUserError,
    InternalTorchDynamoError,
    UncapturedHigherOrderOpError,
    Unsupported,
)


def compile_in_place(model: Any, targets: Sequence[Target], how: Compile) -> Watch:
    """Has every module of the targets run as compiled code from its next call on, which compiles it.

    Where an attention splits its rows by the lengths of the images it is given the operator of
    `proctor.engines.compiling.attention`, which does the same inside a graph.

    Args:
        model: a ``torch.nn.Module``.
        targets: from `proctor.engines.compiling.targets.find_targets`.
        how: backend, sizes, limits; its `targets` do not matter here.

    Returns:
        What there is to know about it, as it goes on.

    Raises:
        UserError: from a call of a module, later: the target cannot be compiled, with the reason.
    """
    watch = Watch([target.name for target in targets])
    for target in targets:
        region = Region(target, how, Owner(watch, target.name))
        _attach(model, target, region)
    return watch


def follow(model: Any, targets: Sequence[Target], old: Any) -> None:
    """Has `model` run by the code that was compiled for `old`, which is of the same architecture.

    Nothing is compiled anew where weights differ in their values alone.
    """
    for target in targets:
        call = old.get_submodule(target.modules[0])._compiled_call_impl
        if isinstance(call, Call):
            _attach(model, target, call.region)


def undo(model: Any, targets: Sequence[Target]) -> None:
    """Back to eager: every module of the targets runs as it did before."""
    for target in targets:
        for name in target.modules:
            model.get_submodule(name)._compiled_call_impl = None
    if _transformers_is_loaded() and not any(isinstance(m._compiled_call_impl, Call) for m in model.modules()):
        from proctor.engines.compiling.attention import unpack

        unpack(model)


def _attach(model: Any, target: Target, region: Region) -> None:
    modules = [model.get_submodule(name) for name in target.modules]
    for module in modules:
        module._compiled_call_impl = Call(module, region)
    if _transformers_is_loaded():
        from proctor.engines.compiling.attention import pack

        pack(model, modules)


def _transformers_is_loaded() -> bool:
    """A model of anyone else has no attention of its kind."""
    return "transformers" in sys.modules


class Region:
    """One target in the compiler.

    Attributes:
        compiled: takes a module of the target and the arguments of its call.
        eager: whether the target has fallen back for good.
        owner: whose compilations these are.
    """

    def __init__(self, target: Target, how: Compile, owner: Owner) -> None:
        self.owner = owner
        self.eager = False
        self._how = how
        self._target = target
        self.dynamic = target.dynamic if how.dynamic else {}
        self.compiled: Callable[..., Any] = torch.compile(
            _named(target.name),
            backend=how.backend,
            dynamic=how.dynamic,
            fullgraph=how.fullgraph,
            recompile_limit=how.recompile_limit,
            isolate_recompiles=True,
            name=target.name,
        )

    def fall_back(self) -> None:
        """The limit was hit and a full graph demanded: the compiled graphs are given up, the target runs eagerly."""
        self.eager = True
        watch, name = self.owner
        if not watch.counters[name].fallbacks:  # PyTorch's log was silenced
            watch.add(name, Seen(fallbacks=(f"recompile_limit of {self._how.recompile_limit} was hit",)))

    def mistake(self, error: Exception) -> UserError:
        """What the compiler's failure means for the user."""
        name, how = self._target.name, self._how
        reason = one_line(str(error).strip().partition("\n\n")[0])
        if isinstance(error, BackendCompilerFailed):
            what = f"the backend {how.backend} cannot compile {name}: {reason}"
            fix = _INSTALL if _NO_COMPILER in reason else f"leave {name} out, or take another backend"
            return UserError(what, where="engine.compile.backend", fix=fix)
        what = f"{name} cannot be compiled as one graph: {reason}"
        fix = f"leave {name} out" + (", or set fullgraph: false" if how.fullgraph else "")
        return UserError(what, where="engine.compile.targets", fix=fix)


class Call:
    """Stands in for a module's call.

    Attributes:
        region: what compiles it.
        owner: whose compilations these are.
    """

    __slots__ = ("_module", "_set_aside", "owner", "region")

    def __init__(self, module: torch.nn.Module, region: Region) -> None:
        self._module, self.region, self.owner = module, region, region.owner
        self._set_aside: list[tuple[Any, dict[int, Any]]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own call: its hooks as ever, its forward compiled."""
        if _has_hooks(self._module):
            return self._hooked(args, kwargs)
        return self.run(*args, **kwargs)

    def _hooked(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A graph that alike modules share knows no hooks of one of them: they run around it, as PyTorch runs them."""
        module, own = self._module, self._module.__dict__.get("forward")

        def restore() -> None:
            module.__dict__.pop("forward", None)
            if own is not None:
                module.__dict__["forward"] = own

        def forward(*args: Any, **kwargs: Any) -> Any:
            restore()
            return self.run(*args, **kwargs)

        module.__dict__["forward"] = forward
        try:
            return module._call_impl(*args, **kwargs)
        finally:
            restore()

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """The module's forward, compiled; eager where a limit was hit."""
        region = self.region
        if region.eager:
            return self._module.forward(*args, **kwargs)
        try:
            return region.compiled(self._module, *args, **kwargs)
        except FailOnRecompileLimitHit:
            region.fall_back()
        except _CANNOT as error:
            inner = getattr(error, "inner_exception", None)
            if isinstance(inner, (torch.OutOfMemoryError, MemoryError)):
                raise inner from error
            raise region.mistake(error) from error
        return self._module.forward(*args, **kwargs)

    def compiles(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Called when the compiler is about to look at a call's arguments.

        It is told which of their sizes are constants and takes the others for symbols. Later calls need not be marked.
        Until the compiler has ended, transformers' recorders of inner outputs are out of its way: it cannot trace them,
        and what they would record (weights of attentions) PyTorch's attention does not tell anyway.
        """
        self._set_aside = [(inner, dict(inner._forward_hooks)) for inner in self._module.modules() if _recorded(inner)]
        for inner, hooks in self._set_aside:
            for key in hooks:
                if _is_recorder(hooks[key]):
                    del inner._forward_hooks[key]
        dynamic = self.region.dynamic
        if not dynamic:
            return
        for name, value in self._by_name(args, kwargs):
            if name in dynamic and isinstance(value, torch.Tensor):
                _mark_static(value, set(range(value.dim())) - set(dynamic[name]))

    def ended(self) -> None:
        """Called when the compiler has ended."""
        for inner, hooks in self._set_aside:
            inner._forward_hooks.clear()
            inner._forward_hooks.update(hooks)
        self._set_aside = []

    def _by_name(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[str, Any]]:
        names = list(inspect.signature(self._module.forward).parameters)
        return [*zip(names, args, strict=False), *kwargs.items()]


def _recorded(module: torch.nn.Module) -> bool:
    return any(map(_is_recorder, module._forward_hooks.values()))


def _is_recorder(hook: Any) -> bool:
    return getattr(hook, "__module__", "") == "transformers.utils.output_capturing"


def _has_hooks(module: torch.nn.Module) -> bool:
    """As ``torch.nn.Module._call_impl`` decides it, but for hooks of gradients, which no engine has."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or global_hooks._global_forward_hooks
        or global_hooks._global_forward_pre_hooks
    )


def _mark_static(tensor: Any, dimensions: set[int]) -> None:
    """As ``torch._dynamo.mark_static``, which means something else inside of a compilation (torch 2.13)."""
    tensor._dynamo_static_indices = getattr(tensor, "_dynamo_static_indices", set()) | dimensions
    tensor._has_dynamo_dim_marking = True


calls[Call.run.__code__] = "self"


def _named(name: str) -> Callable[..., Any]:
    """The function that is compiled, as a copy that has the target's name: in PyTorch's logs it shows under it."""

    def call(module: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        return module.forward(*args, **kwargs)

    return FunctionType(call.__code__.replace(co_name=name), call.__globals__, name)
