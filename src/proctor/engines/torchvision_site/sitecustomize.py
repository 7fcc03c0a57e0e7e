"""Run by Python at start-up in an engine's child processes, if `torchvision_shim` has put this folder on their path.

Declares torchvision's missing operators at the moment torchvision is first imported, and costs nothing where it is not.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

_HERE = Path(__file__).parent


class _BeforeTorchvision:
    """A finder that finds nothing, but is asked first."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:  # noqa: ARG002 (the protocol's signature)
        if name == "torchvision":
            sys.meta_path.remove(self)
            _run(spec_from_file_location("_torchvision_shim", _HERE.parent / "torchvision_shim.py"))
            sys.modules["_torchvision_shim"].declare_missing_operators()


def _run(spec: ModuleSpec | None) -> None:
    if spec is not None and spec.loader is not None:
        module = sys.modules[spec.name] = module_from_spec(spec)
        spec.loader.exec_module(module)


def _run_hidden_one() -> None:
    """Runs the `sitecustomize` that Python would have found without this one."""
    others = [entry for entry in sys.path if entry and Path(entry) != _HERE]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


sys.meta_path.insert(0, _BeforeTorchvision())
_run_hidden_one()
