from __future__ import annotations

import pytest

from proctor.results import RunDir
from tests.view.helpers import make_run


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A complete run of 100 rows and four checkpoints. Tests must not change it."""
    return make_run(tmp_path_factory.mktemp("finished"), 100)
