from __future__ import annotations

from tests.runner.conftest import make_spec

__all__ = ["make_spec"]
