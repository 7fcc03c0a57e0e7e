"""Packages that can be called like the one function that they are about: ``overlap(trace)``.

Python binds a package's name in the package around it as soon as anything in it is imported. So ``from proctor.trace
import overlap`` gives the package, whatever the package around it would rather have given; calling it does what was
meant.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Called(ModuleType):
    _home: str
    _function: str

    def __call__(self, *args: Any, **named: Any) -> Any:
        return getattr(import_module(self._home), self._function)(*args, **named)


def called_as(package: str, function: str, *, home: str) -> None:
    """Lets a package be called.

    Args:
        package: its full name; it is being imported.
        function: what a call of it calls.
        home: the module that has the function; imported at the first call.
    """
    module = sys.modules[package]
    module.__class__ = _Called
    vars(module).update(_home=home, _function=function)
