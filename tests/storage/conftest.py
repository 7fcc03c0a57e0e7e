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


@pytest.fixture(params=["local", "s3", "file"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    """An empty folder in each kind of place."""
    if request.param == "s3":
        bucket: Bucket = request.getfixturevalue("bucket")
        return open_folder(bucket.url("runs/a b"), bucket.options)
    return open_folder(tmp_path / "run" if request.param == "local" else f"file://{tmp_path}/run%20dir")
