"""The script that the child runs, under whichever interpreter the engine needs.

It makes the package that holds this file importable and nothing beside it: the child's interpreter may belong to
another environment, whose libraries must not be mixed with those of the supervisor's. Processes that the engine
itself spawns run this file again as their main module, under another name, and so find the package too.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from pathlib import Path

PACKAGE = "proctor"
_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = ctypes.c_ulong(-1)


def _let_stacks_be_read() -> None:
    """Allows the user's other processes to trace this one, where the kernel's Yama restricts that to ancestors.

    The process that reads the stacks of a stalled engine is started by the supervisor and is no ancestor. What is
    allowed here is not inherited: each process that the engine spawns runs this file, and so allows it for itself.
    Elsewhere the call fails and nothing is needed.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _PR_SET_PTRACER_ANY, 0, 0, 0)


def _register_package() -> None:
    home = Path(__file__).resolve().parents[1]
    spec = importlib.util.spec_from_file_location(PACKAGE, home / "__init__.py", submodule_search_locations=[str(home)])
    if spec is None or spec.loader is None:
        raise ImportError(f"no package in {home}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = module
    spec.loader.exec_module(module)


_let_stacks_be_read()
if PACKAGE not in sys.modules:
    _register_package()

if __name__ == "__main__":
    from proctor.supervise.child import main

    main(sys.argv[1:])
