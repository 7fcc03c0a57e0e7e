from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.storage.folder import Folder, open_folder
from tests.storage.bucket import Bucket, served


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    with served(tmp_path / "server") as bucket:
        yield bucket


@pytest.fixture(params=["local", "s3"])
def run_folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    """An empty run directory in each kind of place."""
    if request.param == "local":
        return open_folder(tmp_path / "run")
    bucket: Bucket = request.getfixturevalue("bucket")
    return open_folder(bucket.url("run"), bucket.options)
