"""Reads an installed package's Python sources as syntax trees, and only the files that name what is looked for."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Module:
    """One source file of a package; `name` is its path inside the package."""

    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree; an empty one where this interpreter cannot parse it."""
        try:
            return ast.parse(self.text)
        except SyntaxError:
            return ast.Module([], [])

    def at(self, node: ast.AST) -> str:
        """``file:line`` of a node."""
        return f"{self.name}:{getattr(node, 'lineno', 0)}"

    def functions(self, name: str) -> Iterator[ast.FunctionDef]:
        """Functions and methods of that name."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef) and node.name == name:
                yield node

    def classes(self, name: str) -> Iterator[ast.ClassDef]:
        """Classes of that name."""
        return (node for node in self.tree.body if isinstance(node, ast.ClassDef) and node.name == name)

    def fields(self) -> Iterator[tuple[ast.ClassDef, ast.AnnAssign, str]]:
        """Annotated fields of its classes, each with its class and the docstring below it."""
        for owner in self.tree.body:
            if isinstance(owner, ast.ClassDef):
                below = [*owner.body[1:], None]
                for node, after in zip(owner.body, below, strict=True):
                    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                        yield owner, node, _docstring(after)


class Sources:
    """The modules of a package that mention at least one of some words.

    Args:
        home: the package's directory.
        words: what is looked for, as written in the sources.
    """

    def __init__(self, home: Path, words: Collection[str]) -> None:
        wanted = [word.encode() for word in words]
        self.modules: list[Module] = []
        for path in sorted(home.rglob("*.py")):
            data = path.read_bytes()
            if any(word in data for word in wanted):
                self.modules.append(Module(path.relative_to(home).as_posix(), data.decode("utf-8", "replace")))

    def mentioning(self, word: str) -> Iterator[Module]:
        """Modules whose text has `word`."""
        return (module for module in self.modules if word in module.text)

    def module(self, name: str) -> Module | None:
        """The module at that path, if it is there and mentions anything that is looked for."""
        return next((module for module in self.modules if module.name == name), None)


def named(node: ast.AST) -> set[str]:
    """Every name and attribute in an expression or statement."""
    names = {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}
    return names | {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def strings(node: ast.AST) -> Iterator[str]:
    """Every string constant in a node."""
    return (inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant) and isinstance(inner.value, str))


def _docstring(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split())
    return ""
