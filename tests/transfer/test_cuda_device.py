"""The CUDA device without a GPU: on which stream things are done, deadlines, errors, and how many streams there are.

What a GPU does is in test_gpu.py.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import pytest
import torch

from proctor.rows import UserError
from proctor.transfer.devices.cpu import HostEvent
from proctor.transfer.devices.cuda import CudaDevice, CudaEvent, CudaStream, refuse_default
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.slots import Ring
from tests.transfer.fake_cuda import FakeCuda, FakeEvent, signatures_are_real


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return FakeCuda(monkeypatch)


@pytest.fixture
def device(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> CudaDevice:
    monkeypatch.setattr(CudaDevice, "buffer", lambda self, nbytes: torch.zeros(nbytes, dtype=torch.uint8))
    return CudaDevice(0)


def test_what_is_faked_is_called_as_the_real_thing() -> None:
    signatures_are_real()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu_is_said() -> None:
    with pytest.raises(UserError, match="there is no GPU 0 here"):
        CudaDevice(0)


def test_a_gpu_that_is_not_there_is_said(cuda: FakeCuda) -> None:
    with pytest.raises(UserError, match="there is no GPU 1 here"):
        CudaDevice(1)


def test_no_stream_is_the_default_one(cuda: FakeCuda) -> None:
    with pytest.raises(RuntimeError, match="never run on the default stream"):
        CudaStream(torch.cuda.default_stream(0))
    with pytest.raises(RuntimeError, match="never run on the default stream"):
        refuse_default(torch.cuda.current_stream(0))


def test_work_is_done_on_the_stream_and_events_are_recorded_there(device: CudaDevice, cuda: FakeCuda) -> None:
    stream, seen = device.stream(), []
    stream.run(lambda: seen.append(torch.cuda.current_stream(0)))
    assert seen == [stream.raw]
    assert stream.record().raw.recorded_on == stream.raw  # type: ignore[attr-defined]
    assert device.ready().raw.recorded_on == cuda.current[0]  # type: ignore[attr-defined]


def test_a_stream_waits_on_the_gpu_for_the_gpu_and_on_the_host_for_the_host(device: CudaDevice) -> None:
    stream, other = device.stream(), device.stream()
    event, host = other.record(), HostEvent("the host")
    stream.wait(event)
    assert stream.raw.waits == [event.raw]  # type: ignore[attr-defined]
    host.fail(TransferError(Reason.DEAD, "hung up"))
    with pytest.raises(TransferError, match="hung up"):
        stream.wait(host)


def test_a_copy_is_not_made_from_pageable_memory(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = torch.zeros(4, dtype=torch.uint8), torch.ones(4, dtype=torch.uint8)
    device.stream().copy(one, other)
    assert one.tolist() == [1, 1, 1, 1]
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: False)
    with pytest.raises(ValueError, match="pageable"):
        device.stream().copy(one, other)


def test_what_never_ends_is_late(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeEvent, "over", False)
    with pytest.raises(TransferError, match="not over at the deadline") as caught:
        device.stream().record().wait(time.monotonic() + 0.02)
    assert caught.value.reason is Reason.LATE


def test_a_slot_whose_work_never_ends_is_late(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring(device, 8)
    with ring.next():
        pass
    with ring.next():
        pass
    monkeypatch.setattr(FakeEvent, "over", False)
    with pytest.raises(TransferError, match="not over at the deadline"):
        ring.next(time.monotonic() + 0.02)


def test_a_broken_gpu_is_told(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeEvent, "broken", True)
    with pytest.raises(TransferError, match="the GPU has failed: CUDA error: an illegal memory access") as caught:
        device.stream().record().wait()
    assert caught.value.reason is Reason.EXCEPTION


def test_host_work_comes_after_the_stream(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(FakeEvent, "query", lambda event: bool(done.append("asked")) or len(done) > 2)
    device.stream().host(lambda: done.append("called"))
    assert done == ["asked", "asked", "asked", "called"]


@pytest.fixture
def only_what_is_new() -> Iterator[None]:
    """What is there already (imports of other tests, hundreds of thousands of objects) is no garbage of this test."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("only_what_is_new")
def test_streams_are_made_once_however_many_transfers_there_are(device: CudaDevice, cuda: FakeCuda) -> None:
    for _ in range(50):
        ring = Ring(device, 8)
        with ring.next() as held:
            held.stream.run(lambda: None)
        ring.drain()
        del ring, held
        gc.collect()
    assert cuda.made == 2


def test_time_between_two_events(device: CudaDevice) -> None:
    stream = device.stream()
    first, second = stream.mark(), stream.mark()
    assert isinstance(first, CudaEvent)
    assert second.seconds_since(first) == 0.002
