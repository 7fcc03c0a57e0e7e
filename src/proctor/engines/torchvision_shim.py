"""Makes a torchvision importable whose native library cannot load.

A CUDA build of torchvision beside a CPU build of torch (what vLLM's CPU wheels bring along) fails on import with
``operator torchvision::nms does not exist``: it registers fake kernels for operators that its library did not declare.
Declaring the operators is enough; transforms and image processors never call them.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_OPERATORS = ("nms", "qnms")
_SITE = Path(__file__).with_name("torchvision_site")

_declared: list[Any] = []
"""Keeps the declaration alive: torch forgets it together with the object."""


def declare_missing_operators() -> bool:
    """Declares torchvision's operators if its own library cannot; call it before anything imports torchvision.

    Beside a library that loads, a second declaration would abort the process, so the library is tried first. Python
    processes that this one starts do the same: vLLM looks at a model's class, and may run its engine, in other ones.

    Returns:
        Whether anything was declared.
    """
    library = _native_library()
    if "torchvision" in sys.modules or library is None:
        return False
    import torch

    if hasattr(torch.ops.torchvision, _OPERATORS[0]):
        return False
    try:
        torch.ops.load_library(str(library))
    except OSError:
        namespace = torch.library.Library("torchvision", "DEF")
        for operator in _OPERATORS:
            namespace.define(f"{operator}{_SCHEMA}")
        _declared.append(namespace)
        _teach_children()
        return True
    return False


def _teach_children() -> None:
    path = os.environ.get("PYTHONPATH", "")
    if str(_SITE) not in path.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(part for part in (str(_SITE), path) if part)


def _native_library() -> Path | None:
    spec = find_spec("torchvision")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent
    names = [f"_C{suffix}" for suffix in (*EXTENSION_SUFFIXES, ".so", ".dylib", ".pyd")]
    return next((home / name for name in names if (home / name).is_file()), None)
