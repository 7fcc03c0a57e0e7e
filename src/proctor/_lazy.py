"""Names of a package that load on first use, so that importing the package costs next to nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """What a package calls ``__getattr__`` and ``__dir__`` (PEP 562).

    Args:
        package: its name.
        homes: by name, the module below the package that has it.
    """

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    def names() -> list[str]:
        return sorted(sys.modules[package].__all__)

    return load, names
