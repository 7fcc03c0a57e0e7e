"""The script that the child runs, under whichever interpreter the engine needs.

It makes the package that holds this file importable and nothing beside it: the child's interpreter may belong to
another environment, whose libraries must not be mixed with those of the supervisor's. Processes that the engine
itself spawns run this file again as their main module, under another name, and so find the package too.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

PACKAGE = "proctor"


def _register_package() -> None:
    home = Path(__file__).resolve().parents[1]
    spec = importlib.util.spec_from_file_location(PACKAGE, home / "__init__.py", submodule_search_locations=[str(home)])
    if spec is None or spec.loader is None:
        raise ImportError(f"no package in {home}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = module
    spec.loader.exec_module(module)


if PACKAGE not in sys.modules:
    _register_package()

if __name__ == "__main__":
    from proctor.supervise.child import main

    main(sys.argv[1:])
