"""A bucket that tests write to on disk and read by URL, behind a proxy that plants faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.storage.connect import StorageOptions
from tests.faults.proxy import FaultProxy


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """Directory of a bucket, and the address of the S3 server that serves it."""
    hadro = pytest.importorskip("hadro")
    root = tmp_path_factory.mktemp("s3") / "bucket"
    root.mkdir()
    with hadro.Server(data=str(root.parent)) as server:
        yield root, server.endpoint.removeprefix("http://")


@pytest.fixture
def proxy(bucket: tuple[Path, str]) -> Iterator[FaultProxy]:
    with FaultProxy(bucket[1]) as proxy:
        yield proxy


@pytest.fixture
def storage(proxy: FaultProxy) -> StorageOptions:
    return StorageOptions(endpoint=proxy.endpoint, anonymous=True, attempts=3, read_seconds=0.5)
