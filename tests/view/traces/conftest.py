from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.trace.conftest import cache_of_its_own, samples
from tests.trace.exports import Export
from tests.view.app.asking import client_of

__all__ = ["EVIL", "cache_of_its_own", "make_trace", "samples"]

EVIL = "<script>alert(1)</script>\u202e\"'&"


def make_trace(path: Path, *, scale: int = 1, zero: int = 5_000_000) -> Path:
    """Two streams of a GPU, a thread with ranges and calls, copies, and names that are none."""
    with Export(path) as export:
        export.gpu()
        export.annotation("step", zero, zero + 400_000 * scale)
        export.annotation(EVIL, zero + 1_000, zero + 90_000)
        export.annotation("here", zero + 2_000, None, kind=34)
        for turn in range(30):
            at = zero + 3_000 + 12_000 * turn
            export.launch("void gemm<float>(int)", at, at + 1_000, at + 1_000 + 4_000 * scale)
            export.launch(EVIL, at + 100, at + 7_000, at + 7_500, stream=8)
        export.copy(zero + 395_000, zero + 397_000, kind=1, bytes=4096)
        export.sync(zero + 390_000, zero + 398_000)
    return path


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with traces, and with what only looks like some."""
    root = tmp_path_factory.mktemp("traces") / "runs"
    (root / "deep <i>").mkdir(parents=True)
    make_trace(root / "a.sqlite")
    make_trace(root / "deep <i>" / "b '&.sqlite", scale=2)
    (root / "text.sqlite").write_text("nothing")
    (root / "report.nsys-rep").write_bytes(b"\x00" * 64)
    (root / "cut.pt.trace.json.gz").write_bytes(b"\x1f\x8b\x08\x00")
    (root / "away.sqlite").symlink_to(make_trace(root.parent / "outside.sqlite"))
    return root


@pytest.fixture(scope="session")
def client(place: Path) -> Iterator[TestClient]:
    with client_of(place) as client:
        yield client
