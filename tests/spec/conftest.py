from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def plain() -> dict[str, Any]:
    """A small valid spec as plain data."""
    return {
        "run_dir": "out",
        "source": {"kind": "mds", "path": "data", "columns": {"images": ["frames"], "target": "target"}},
        "engine": {"kind": "transformers", "checkpoints": ["weights/a", "weights/b"]},
        "task": {"kind": "driving"},
    }
