from __future__ import annotations

from tests.runner.conftest import make_spec
from tests.supervise.conftest import supervise

__all__ = ["make_spec", "supervise"]
