from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.view.app.asking import client_of
from tests.view.helpers import make_run


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("site") / "runs"
    make_run(root / "good", 100)
    make_run(root / "evil <b>&\"'", 12, lost=2, hostile=True)
    (root / "audits").mkdir()
    (root / "audits" / "audit.json").write_text("{}")
    damaged = root / "damaged"
    damaged.mkdir()
    (damaged / "spec.yaml").write_text("source: [")
    return root


@pytest.fixture(scope="session")
def client(root: Path) -> Iterator[TestClient]:
    with client_of(root) as client:
        yield client
