"""Whole checkpoints: shards and their index, object storage, pickles, files that change while they are read."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from proctor.rows import UserError
from proctor.transfer import reading
from proctor.transfer.checkpoint import INDEX, SINGLE, open_checkpoint
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.published import BUCKET_BYTES
from proctor.transfer.publishing import publish
from proctor.transfer.reading import content_of, read_checkpoint
from proctor.transfer.sources import LocalSource, RemoteSource
from tests.leaks import descriptors
from tests.storage.bucket import Bucket, served
from tests.transfer.test_published import same, some

FILES = {"config.json": '{"a": 1}', "tokenizer.json": "{}", "chat_template.jinja": "x", "README.md": "no part of it"}


@cache
def tensors() -> dict[str, torch.Tensor]:
    """Three buckets, a tensor in two of them, odd ends, small ones between large ones."""
    found = {f"layer.{number}.weight": some(torch.bfloat16, (300, 7 + number), number) for number in range(12)}
    found["big"] = some(torch.uint8, (2 * BUCKET_BYTES + 13,), 1)
    found["scalar"], found["none"] = some(torch.float32, ()), some(torch.float16, (0, 4))
    return found


def shard(root: Path, found: dict[str, torch.Tensor], count: int) -> None:
    """As transformers saves it: by turns, so that neighbours by name lie in different files."""
    root.mkdir(parents=True, exist_ok=True)
    weight_map = {}
    for number in range(count):
        name = f"model-{number + 1:05}-of-{count:05}.safetensors"
        part = {key: found[key] for index, key in enumerate(found) if index % count == number}
        save_file(part, root / name)
        weight_map |= dict.fromkeys(part, name)
    (root / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))


def beside(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        (root / name).write_text(text)


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    shard(tmp_path / "ck", tensors(), 3)
    beside(tmp_path / "ck")
    return tmp_path / "ck"


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    with served(tmp_path / "server") as bucket:
        yield bucket


def equal(path: Path | str, **more: object) -> None:
    told = tensors()
    with read_checkpoint(str(path), **more) as published:  # type: ignore[arg-type]
        published.verify()
        found = published.tensors()
    assert found.keys() == told.keys()
    assert all(same(found[name], told[name]) for name in told)


@pytest.mark.parametrize("readers", [1, 3, 16])
def test_shards_come_together(sharded: Path, readers: int) -> None:
    equal(sharded, readers=readers)


def test_the_content_does_not_depend_on_the_shards(sharded: Path, tmp_path: Path) -> None:
    single = tmp_path / "single"
    beside(single)
    save_file(tensors(), single / SINGLE)
    shard(tmp_path / "seven", tensors(), 7)
    beside(tmp_path / "seven")
    ids = set()
    for path in (sharded, single, tmp_path / "seven"):
        with read_checkpoint(str(path)) as published, open_checkpoint(str(path)) as checkpoint:
            assert content_of(checkpoint) == published.label.content
            assert "README.md" not in checkpoint.files
            ids.add(published.label.content)
    files = {name: text.encode() for name, text in FILES.items() if name != "README.md"}
    with publish(tensors(), files=files) as published:
        ids.add(published.label.content)
    assert len(ids) == 1
    (single / "config.json").write_text('{"a": 2}')
    with open_checkpoint(str(single)) as checkpoint:
        assert content_of(checkpoint) not in ids


def test_from_object_storage(bucket: Bucket) -> None:
    shard(bucket.root / "models/ck", tensors(), 3)
    beside(bucket.root / "models/ck")
    equal(bucket.url("models/ck"), options=bucket.options)
    equal(bucket.url("models/ck/"), options=bucket.options, readers=2)
    with (
        open_checkpoint(bucket.url("models/ck"), bucket.options) as there,
        open_checkpoint(str(bucket.root / "models/ck")) as here,
    ):
        assert there.files == here.files
        assert content_of(there) == content_of(here)


def test_from_object_storage_that_stumbles(bucket: Bucket) -> None:
    save_file(tensors(), _made(bucket.root / "ck") / SINGLE)
    bucket.refuse = {"GET": 0.3, "HEAD": 0.3}
    equal(bucket.url(f"ck/{SINGLE}"), options=bucket.options)


def test_a_web_server_that_lists_nothing(bucket: Bucket) -> None:
    shard(bucket.root / "ck", tensors(), 2)
    beside(bucket.root / "ck")
    url = f"{bucket.endpoint}/bucket/ck"
    equal(url)
    with open_checkpoint(url) as there, open_checkpoint(str(bucket.root / "ck")) as here:
        assert content_of(there) == content_of(here)


def test_a_store_that_fails_is_told(bucket: Bucket) -> None:
    save_file({"a": torch.ones(3)}, _made(bucket.root / "ck") / SINGLE)
    bucket.refuse = {"GET": 1.0}
    with pytest.raises(TransferError, match="try again later") as caught:
        read_checkpoint(bucket.url("ck"), options=replace(bucket.options, attempts=2))
    assert caught.value.reason is Reason.EXCEPTION


def test_what_is_not_there_is_told(tmp_path: Path, bucket: Bucket) -> None:
    for path in (str(_made(tmp_path / "empty")), bucket.url("nothing")):
        with pytest.raises(UserError, match=f"neither {SINGLE} nor {INDEX}"):
            read_checkpoint(path, options=bucket.options)
    for path in (str(tmp_path / "x.safetensors"), bucket.url("ck/x.safetensors")):
        with pytest.raises(UserError, match="not there"):
            read_checkpoint(path, options=bucket.options)
    with pytest.raises(UserError, match="no such folder"):
        read_checkpoint("Qwen/Qwen3-VL-2B-Instruct")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "x.pth"])
def test_pickles_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"cos\nsystem\n(S'touch /tmp/hacked'\ntR.")
    with pytest.raises(UserError, match="is a pickle") as caught:
        read_checkpoint(str(tmp_path))
    assert "save_pretrained" in str(caught.value.fix)
    save_file({"a": torch.ones(3)}, tmp_path / SINGLE)  # beside one that is not, it does no harm
    with read_checkpoint(str(tmp_path)) as published:
        assert published.tensors()["a"].tolist() == [1.0] * 3


def test_pickles_are_refused_where_files_cannot_be_listed(bucket: Bucket) -> None:
    (_made(bucket.root / "ck") / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(UserError, match="is a pickle"):
        read_checkpoint(f"{bucket.endpoint}/bucket/ck")


def test_a_single_file_and_an_index_are_ambiguous(sharded: Path) -> None:
    save_file({"a": torch.ones(3)}, sharded / SINGLE)
    with pytest.raises(UserError, match="are both there"):
        read_checkpoint(str(sharded))


def change_index(root: Path, **changes: str | None) -> None:
    index = json.loads((root / INDEX).read_text())
    index["weight_map"] = {k: v for k, v in (index["weight_map"] | changes).items() if v is not None}
    (root / INDEX).write_text(json.dumps(index))


ONE = "model-00001-of-00003.safetensors"
THREE = "model-00003-of-00003.safetensors"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"new": ONE}, "'new' is not in it, and the index says so"),
        ({"layer.0.weight": None}, "'layer.0.weight' is in it, and not in the index"),
        ({"layer.0.weight": THREE}, f"'layer.0.weight' is in it, and the index says {THREE}"),
        ({"new": "model-4.safetensors"}, "not there"),
    ],
)
def test_an_index_that_contradicts_its_shards(sharded: Path, changes: dict[str, str | None], why: str) -> None:
    change_index(sharded, **changes)
    with pytest.raises(UserError) as caught:
        read_checkpoint(str(sharded))
    assert why in str(caught.value)


def test_a_name_in_two_shards(sharded: Path) -> None:
    save_file({"layer.0.weight": torch.ones(2), "new": torch.ones(2)}, sharded / "more.safetensors")
    change_index(sharded, new="more.safetensors")
    with pytest.raises(UserError, match=f"'layer.0.weight' is in it, and the index says {ONE}"):
        read_checkpoint(str(sharded))


def test_no_file_is_a_file(tmp_path: Path) -> None:
    (tmp_path / SINGLE).mkdir()
    with pytest.raises(UserError, match="is no file"):
        read_checkpoint(str(tmp_path))
    (tmp_path / SINGLE).rmdir()
    os.mkfifo(tmp_path / SINGLE)  # must not block
    with pytest.raises(UserError, match="is no file"):
        read_checkpoint(str(tmp_path))


class Meddler:
    """Does something to the files when the reading has begun for good: at the first read of the tensors."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type[LocalSource | RemoteSource]) -> None:
        self.act = lambda: None
        self._lock, self._done = threading.Lock(), False
        original = kind.read_into

        def read_into(source: LocalSource, start: int, targets: Sequence[memoryview], stop: threading.Event) -> None:
            with self._lock:
                if targets[0].nbytes > 1 << 20 and not self._done:
                    self._done = True
                    self.act()
            original(source, start, targets, stop)  # type: ignore[arg-type]

        monkeypatch.setattr(kind, "read_into", read_into)


@pytest.mark.parametrize("how", ["cut", "written", "replaced", "gone", "touched"])
def test_a_file_that_changes_under_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    path = tmp_path / SINGLE
    save_file(tensors(), path)
    meddler = Meddler(monkeypatch, LocalSource)

    def act() -> None:
        if how == "cut":
            os.truncate(path, path.stat().st_size // 2)
        elif how == "written":
            with path.open("r+b") as file:
                file.seek(-5, 2)
                file.write(b"x")
        elif how == "touched":
            os.utime(path)
        else:
            path.rename(tmp_path / "old")
            if how == "replaced":
                path.write_bytes((tmp_path / "old").read_bytes())

    meddler.act = act
    before = descriptors()
    with pytest.raises(TransferError, match="while it was read") as caught:
        read_checkpoint(str(tmp_path), readers=2)
    assert caught.value.reason is Reason.CORRUPT
    assert str(path) in str(caught.value)
    assert descriptors() <= before
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("proctor-read")]


def test_an_object_that_is_replaced_under_the_reading(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _made(bucket.root / "ck") / SINGLE
    save_file(tensors(), path)
    meddler = Meddler(monkeypatch, RemoteSource)

    def act() -> None:
        data = bytearray(path.read_bytes())
        data[-3] ^= 1
        path.with_suffix(".new").write_bytes(data)
        path.with_suffix(".new").rename(path)

    meddler.act = act
    with pytest.raises(TransferError, match="was replaced while it was read"):
        read_checkpoint(bucket.url("ck"), options=bucket.options)


def test_a_fault_in_one_reader_ends_all(sharded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(source: LocalSource, start: int, targets: object, stop: object) -> None:
        raise TransferError(Reason.EXCEPTION, "the disk is broken")

    with open_checkpoint(str(sharded)) as checkpoint:
        monkeypatch.setattr(LocalSource, "read_into", broken)
        with pytest.raises(TransferError, match="the disk is broken"):
            reading.publish_checkpoint(checkpoint)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("proctor-read")]


def _made(path: Path) -> Path:
    path.mkdir(parents=True)
    return path
