"""Which of vLLM's switches cancel each other: chains of "if this is set, that is set too", read in its sources.

What is followed: an ``if`` whose test depends on a switch, directly, through a variable of the same function or through
what a called function returns, and whose body sets an environment variable or the compilation mode to NONE. A module
of a model that is compiled only on condition looks at that mode, so a switch for it then does nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from proctor.engines.inspection import Conflict
from proctor.engines.sources import Module, Sources, named

MODE = "CompilationMode.NONE"
ENCODER = "compilation_config.compile_mm_encoder"
CAUSES = ("VLLM_BATCH_INVARIANT", "VLLM_USE_BREAKABLE_CUDAGRAPH", "enforce_eager")
WORDS = ("VLLM_USE_BREAKABLE_CUDAGRAPH", "CompilationMode.NONE", "should_torch_compile_mm_encoder")


class _Edge(NamedTuple):
    """Where `cause` is set, `effect` comes to be set as well."""

    cause: str
    effect: str
    where: str


def conflicts(sources: Sources) -> list[Conflict]:
    """Every switch that, when set, leaves the encoder's compilation without effect."""
    gate = _encoder_gate(sources)
    if gate is None:
        return []
    edges = list(_edges(sources))
    found = []
    for cause in CAUSES:
        chain = _chain(edges, cause, MODE)
        if chain:
            steps = ", which sets ".join(edge.effect for edge in chain)
            what = f"{cause} sets {steps} where the conditions beside it hold: modules compiled on request are then not"
            where = (*(edge.where for edge in chain), gate)
            found.append(Conflict(switches=(cause, ENCODER), loser=ENCODER, what=what, where=where))
    return found


def _chain(edges: list[_Edge], start: str, goal: str) -> list[_Edge]:
    """The shortest chain of edges; empty if there is none."""
    reached: list[list[_Edge]] = [[edge] for edge in edges if edge.cause == start]
    seen = {start}
    while reached:
        chain = reached.pop(0)
        if chain[-1].effect == goal:
            return chain
        if chain[-1].effect not in seen:
            seen.add(chain[-1].effect)
            reached += [[*chain, edge] for edge in edges if edge.cause == chain[-1].effect]
    return []


def _encoder_gate(sources: Sources) -> str | None:
    """Where a conditionally compiled module decides that it is not compiled in mode NONE."""
    for module in sources.mentioning("should_torch_compile_mm_encoder"):
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Assign) and _mentions_mode(node.value) and _stands_for(node, "do_not_compile"):
                return module.at(node)
    return None


def _stands_for(node: ast.Assign, name: str) -> bool:
    return any(getattr(target, "attr", getattr(target, "id", "")) == name for target in node.targets)


def _edges(sources: Sources) -> Iterator[_Edge]:
    for module in sources.modules:
        if not module.name.startswith("config/") and module.name != "config.py":
            continue
        for function in ast.walk(module.tree):
            if isinstance(function, ast.FunctionDef):
                yield from _edges_of(sources, module, function)


def _edges_of(sources: Sources, module: Module, function: ast.FunctionDef) -> Iterator[_Edge]:
    for branch in ast.walk(function):
        if not isinstance(branch, ast.If):
            continue
        effects = [(effect, node) for node in branch.body if (effect := _effect(node)) is not None]
        causes = _causes(sources, function, branch.test) if effects else set()
        for effect, node in effects:
            yield from (_Edge(cause, effect, module.at(node)) for cause in sorted(causes) if cause != effect)


def _effect(node: ast.stmt) -> str | None:
    """What a statement sets: a variable of the environment, or the compilation mode to NONE."""
    if not isinstance(node, ast.Assign):
        return None
    target = node.targets[0]
    if isinstance(target, ast.Subscript) and "environ" in named(target.value):
        return str(target.slice.value) if isinstance(target.slice, ast.Constant) else None
    is_mode = isinstance(target, ast.Attribute) and target.attr == "mode" and "compilation_config" in named(target)
    return MODE if is_mode and _mentions_mode(node.value) else None


def _mentions_mode(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.Attribute) and ast.unparse(inner) == MODE for inner in ast.walk(node))


def _causes(sources: Sources, function: ast.FunctionDef, test: ast.expr) -> set[str]:
    """Switches whose being set makes a test true: those that it names, itself or one step further away."""
    wanted = _positive(test)
    names = set().union(*map(named, wanted)) if wanted else set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and any(getattr(target, "id", None) in names for target in node.targets):
            for part in _positive(node.value):
                names |= named(part)
    for name in sorted(names):
        names |= _returned(sources, name)
    return names & set(CAUSES)


def _positive(test: ast.expr) -> list[ast.expr]:
    """The parts of a condition that must be true, without those that are negated."""
    if isinstance(test, ast.BoolOp):
        return [part for value in test.values for part in _positive(value)]
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return []
    return [test]


def _returned(sources: Sources, name: str) -> set[str]:
    """What the value of a small function is made of; small: it does nothing but return."""
    if not name.startswith(("is_", "_is_", "use_", "_use_")):
        return set()
    found: set[str] = set()
    for module in sources.mentioning(f"def {name}("):
        for function in module.functions(name):
            for node in function.body:
                if isinstance(node, ast.Return) and node.value is not None:
                    found |= named(node.value)
    return found
