"""Trackers of a run whose directory is in a bucket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.rows import Event
from proctor.spec import JsonlTrackerSpec, TensorBoardTrackerSpec
from proctor.storage.folder import open_folder
from proctor.trackers import Trackers, sync
from proctor.trackers.book import Book
from tests.storage.bucket import Bucket, served
from tests.trackers.helpers import plant_library


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    with served(tmp_path / "server") as bucket:
        yield bucket


def told(bucket: Bucket, name: str) -> list[int]:
    parts = [data for key, data in sorted(bucket.contents().items()) if f"trackers/{name}/" in key]
    return [json.loads(line)["step"] for data in parts for line in data.splitlines()]


def test_everything_is_in_the_bucket_when_the_close_returns(bucket: Bucket) -> None:
    events: list[Event] = []
    for first in (0, 10):
        folder = open_folder(bucket.url("runs/one"), bucket.options)
        trackers = Trackers([JsonlTrackerSpec(kind="jsonl")], folder, events.append)
        for step in range(first, first + 5):
            trackers.log(step, {"rows.done": step}, always=True)
        assert trackers.close(60)[0].complete
    assert told(bucket, "jsonl") == [*range(5), *range(10, 15)]
    book = Book(open_folder(bucket.url("runs/one"), bucket.options), "jsonl")
    assert [entry.n for entry in book.entries()] == list(range(1, 11))
    assert events == []


def test_what_the_bucket_does_not_have_yet_is_not_passed_over(bucket: Bucket) -> None:
    book = Book(open_folder(bucket.url("runs/one"), bucket.options), "t")
    for step in range(3):
        book.write("metrics", 1.0, step, {"rows.done": step})
    assert [entry.n for entry in book.unsent()] == [1, 2, 3]


@pytest.mark.slow
def test_a_sync_of_a_run_in_a_bucket_sends_what_is_left(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_library(tmp_path / "library")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "library"))
    monkeypatch.syspath_prepend(str(tmp_path / "library"))
    spec = TensorBoardTrackerSpec(kind="tensorboard", dir=str(tmp_path / "files"))
    folder = open_folder(bucket.url("runs/one"), bucket.options)
    trackers = Trackers([spec], folder, lambda _: None)
    trackers.log(3, {"rows.done": 3}, always=True)
    assert not trackers.close(0)[0].complete
    assert told(bucket, "tensorboard") == [3]
    again = open_folder(bucket.url("runs/one"), bucket.options)
    assert sync([spec], again, seconds=90)[0].complete
    assert (tmp_path / "files" / "got.jsonl").read_text().splitlines() == ['["scalar", "rows.done", 3.0, 3]']
