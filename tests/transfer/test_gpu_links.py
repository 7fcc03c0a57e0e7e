"""NCCL and CUDA IPC without a GPU: what they ask torch for, and how they fail. What a GPU does is in test_gpu.py."""

from __future__ import annotations

import inspect
import os
import time
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
import torch.distributed as dist

from proctor.rows import UserError
from proctor.transfer.devices.cuda import CudaDevice
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.links.cuda_ipc import CudaSharing, Handle
from proctor.transfer.links.nccl import WATCHDOG_FACTOR, NcclBroadcast, nccl_link
from proctor.transfer.slots import Ring
from tests.transfer.fake_cuda import FakeCuda

NAMES = ("publisher", "r1")


class FakeGroup:
    """``ProcessGroupNCCL``: its back end's base class is in every torch, itself it is not."""

    made: list[FakeGroup] = []  # noqa: RUF012
    refuses = ""

    class Options:
        _timeout = None

    def __init__(self, store: Any, rank: int, size: int, options: Any) -> None:
        self.size, self.options = size, options
        self.errors = os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING")
        self.calls: list[tuple[str, Any, Any]] = []
        self.made.append(self)

    def eager_connect_single_device(self, device: torch.device) -> None:
        if self.refuses:
            raise RuntimeError(self.refuses)
        self.calls.append(("connect", device, None))

    def broadcast(self, tensors: list[torch.Tensor], options: Any) -> None:
        self.calls.append(("broadcast", options, torch.cuda.current_stream(0)))

    def abort(self) -> None:
        self.calls.append(("abort", None, None))


@pytest.fixture
def store() -> dist.Store:
    store = dist.HashStore()
    store.set("here/1", "r1")
    return store


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> CudaDevice:
    cuda = FakeCuda(monkeypatch)
    monkeypatch.setattr(torch.cuda, "device", lambda index: torch.cuda.stream(cuda.current[0]))
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
    monkeypatch.setattr(CudaDevice, "buffer", lambda self, nbytes: torch.zeros(nbytes, dtype=torch.uint8))
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    monkeypatch.setattr(dist, "ProcessGroupNCCL", FakeGroup, raising=False)
    monkeypatch.setattr(FakeGroup, "made", [])
    return CudaDevice(0)


def test_the_fake_has_what_every_back_end_has() -> None:
    for name, function in inspect.getmembers(FakeGroup, inspect.isfunction):
        if not name.startswith("__"):
            assert hasattr(dist.ProcessGroupGloo, name), f"no {name} in torch ({function})"
    assert {"rootRank", "rootTensor", "asyncOp"} <= set(dir(dist.BroadcastOptions()))


def test_a_bucket_is_a_broadcast_on_the_links_own_stream(device: CudaDevice, store: dist.Store) -> None:
    link = nccl_link(NcclBroadcast(store, 0, NAMES, device), device)
    with Ring(device, 64).next() as held:
        link.send(held, 64)
        slots_stream = held.stream.raw  # type: ignore[attr-defined]
    (group,) = FakeGroup.made
    assert group.calls[0] == ("connect", torch.device("cuda:0"), None)
    name, options, stream = group.calls[1]
    assert (name, options.rootRank, options.asyncOp) == ("broadcast", 0, False)
    assert stream not in (slots_stream, torch.cuda.default_stream(0))
    assert group.size == 2


def test_the_watchdog_that_ends_the_process_comes_long_after_every_deadline(
    device: CudaDevice, store: dist.Store
) -> None:
    NcclBroadcast(store, 0, NAMES, device, time.monotonic() + 30)
    assert FakeGroup.made[0].options._timeout.total_seconds() > 25 * WATCHDOG_FACTOR


@pytest.mark.parametrize("before", [None, "3"])
def test_a_dead_peer_does_not_end_this_process(
    before: str | None, device: CudaDevice, store: dist.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's watchdog would, unless it is told to clean up only; what others told theirs stays."""
    monkeypatch.delenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", raising=False)
    if before:
        monkeypatch.setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", before)
    NcclBroadcast(store, 0, NAMES, device)
    assert FakeGroup.made[0].errors == "2"
    assert os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING") == before


def test_closing_aborts_once_and_nothing_is_sent_after_it(device: CudaDevice, store: dist.Store) -> None:
    link = nccl_link(NcclBroadcast(store, 0, NAMES, device), device)
    link.close()
    link.close()
    assert [name for name, _, _ in FakeGroup.made[0].calls] == ["connect", "abort"]
    with Ring(device, 64).next() as held, pytest.raises(TransferError, match="NCCL link is closed") as caught:
        link.send(held, 64)
    assert caught.value.reason is Reason.CANCELLED


def test_a_rank_that_does_not_come_is_named_before_nccl_could_hang(device: CudaDevice) -> None:
    with pytest.raises(TransferError, match="r1: did not come") as caught:
        NcclBroadcast(dist.HashStore(), 0, NAMES, device, time.monotonic() + 0.05)
    assert caught.value.reason is Reason.LATE
    assert not FakeGroup.made


def test_what_nccl_says_is_told(device: CudaDevice, store: dist.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeGroup, "refuses", "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 4000")
    with pytest.raises(TransferError, match="NCCL refused: Duplicate GPU detected"):
        NcclBroadcast(store, 0, NAMES, device)


def test_a_torch_without_nccl_is_said(device: CudaDevice, store: dist.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_nccl_available", lambda: False)
    with pytest.raises(UserError, match="this torch has no NCCL"):
        NcclBroadcast(store, 0, NAMES, device)


def properties(monkeypatch: pytest.MonkeyPatch, *uuids: str) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(uuids))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid=uuids[index]))


def test_a_handle_is_what_torch_shares_and_no_pickle(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = (1, b"\x00handle", 1 << 21, 512, b"/torch_1_2", 3, b"event", True)
    monkeypatch.setattr(torch.UntypedStorage, "_share_cuda_", lambda storage: shared)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    properties(monkeypatch, "GPU-a", "GPU-b")
    buffer = torch.zeros(64, dtype=torch.uint8)[16:48]
    told = msgspec.msgpack.decode(CudaSharing().share(buffer), type=Handle)
    assert told == Handle("GPU-b", b"\x00handle", 1 << 21, 512, b"/torch_1_2", 3, b"event", True, 16, 32)


def test_memory_of_the_host_is_not_shared_by_cuda() -> None:
    with pytest.raises(UserError, match=r"the buffers are on cpu .*take the transport shm"):
        CudaSharing().share(torch.zeros(4, dtype=torch.uint8))


def test_a_gpu_is_known_by_what_it_is_not_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Handle("GPU-b", b"h", 64, 0, b"c", 0, b"e", False, 0, 64)
    opened: list[tuple[Any, ...]] = []

    def new_shared(*arguments: Any) -> None:
        opened.append(arguments)
        raise RuntimeError("invalid resource handle")

    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.UntypedStorage, "_new_shared_cuda", new_shared)
    properties(monkeypatch, "GPU-c", "GPU-a", "GPU-b")
    with pytest.raises(TransferError, match="cannot be opened: invalid resource handle") as caught:
        CudaSharing().open(msgspec.msgpack.encode(handle))
    assert caught.value.reason is Reason.MISMATCH
    assert opened == [(2, b"h", 64, 0, b"c", 0, b"e", False)]


def test_a_gpu_that_cannot_be_seen_from_here_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    properties(monkeypatch, "GPU-a")
    handle = Handle("GPU-b", b"h", 64, 0, b"c", 0, b"e", False, 0, 64)
    with pytest.raises(TransferError, match="GPU-b is not visible here"):
        CudaSharing().open(msgspec.msgpack.encode(handle))


def test_what_is_no_handle_is_refused() -> None:
    for shared in (b"", b"\x01", msgspec.msgpack.encode(["GPU-a", 1])):
        with pytest.raises(TransferError, match="not a handle of CUDA IPC") as caught:
            CudaSharing().open(shared)
        assert caught.value.reason is Reason.MISMATCH
