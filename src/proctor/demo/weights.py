"""The four checkpoints that ship with the package, as complete model directories.

Only the weights differ between checkpoints, so `weights/` stores everything else once, in `weights/shared/`.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

WEIGHTS: Final = Path(__file__).with_name("weights")
SHARED: Final = WEIGHTS / "shared"
CHECKPOINTS: Final = tuple(sorted(path.name for path in WEIGHTS.glob("step-*")))
"""Names in training order, e.g. `step-0300`."""


def model_dirs(out: Path) -> dict[str, Path]:
    """Make a complete model directory `out/NAME` for each checkpoint; returns them by name, in training order.

    They are copies, so whatever is done to them leaves the package alone; files of an earlier call are replaced.
    """
    return {name: _materialise(name, out / name) for name in CHECKPOINTS}


def _materialise(name: str, directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for source in (*SHARED.iterdir(), *(WEIGHTS / name).iterdir()):
        partial = directory / f".{source.name}.partial"
        shutil.copyfile(source, partial)
        partial.replace(directory / source.name)  # an engine may have the old file mapped
    return directory
