"""The published antipatterns of GPU transfers, one by one: each is impossible to write down, raises when it happens, or
is found in a trace by ``proctor trace overlap``. The table is in docs/transfer.md.
"""

from __future__ import annotations

import ast
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import proctor.transfer
from proctor.rows import UserError
from proctor.trace import open_trace
from proctor.trace.overlap.antipatterns import Finding, Verdict
from proctor.trace.overlap.overlap import overlap
from proctor.transfer.devices.cpu import CpuDevice, HostEvent
from proctor.transfer.devices.cuda import CudaStream
from proctor.transfer.devices.virtual import VirtualDevice
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.links import gpu_opening
from proctor.transfer.links.mapped import MappedReceiver, MappedSender
from proctor.transfer.manifest import lay_out
from proctor.transfer.owner import Owner, WrongThreadError
from proctor.transfer.publisher import Publisher
from proctor.transfer.receiver import Receiver
from proctor.transfer.slots import OneBufferWarning, Ring, Slot, StaleSlotError
from tests.trace.exports import Export
from tests.transfer.fake_cuda import FakeCuda
from tests.transfer.pipelines import NBYTES, expected, over_the_virtual_device, publish, receive, without
from tests.transfer.test_mapped_link import Registry

SOON, SECONDS = 0.05, 20.0
NCCL = "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
PACK = "void at::native::<unnamed>::CatArrayBatchedCopy_vectorized<int>(int)"


def finding(export: Export, name: str) -> Finding:
    with open_trace(export.close()) as trace:
        return next(each for each in overlap(trace).findings if each.name == name)


@pytest.fixture
def both() -> Iterator[tuple[Publisher, Receiver]]:
    receiver = Receiver("tcp:127.0.0.1:0", rank="r1", deadline=SECONDS)
    publisher = Publisher([receiver.address], bucket_bytes=1024, deadline=SECONDS)
    yield publisher, receiver
    publisher.close()
    receiver.close()


# 1: the wrong stream is synchronised


def test_1_the_wrong_stream_cannot_be_synchronised() -> None:
    """There is nothing to choose: a slot waits for its own uses, and what belonged to an older use raises."""
    slot, sending, other = Slot(CpuDevice(), 8), HostEvent("this slot's sending"), HostEvent("another slot's")
    with slot.acquire() as held:
        held.until(sending)
    other.set()
    with pytest.raises(TransferError, match="this slot's sending is not over"):
        slot.acquire(time.monotonic() + SOON)
    sending.set()
    slot.acquire()
    with pytest.raises(StaleSlotError, match="generation 1 has been released, 2 is the newest"):
        held.until(other)


# 2: a synchronisation is missing


def test_2_the_only_way_to_a_buffer_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = expected(5)
    found = over_the_virtual_device(VirtualDevice("newest"), 5)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    without(monkeypatch, Slot, "_last_use_over", "use.wait(deadline)", "self._uses.clear()")
    found = over_the_virtual_device(VirtualDevice("newest"), 5)
    assert not all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


# 3: the whole device is synchronised


def test_3_the_library_never_synchronises_the_whole_device() -> None:
    """``torch.cuda.synchronize``, ``torch.accelerator.synchronize``, and streams' and events' own, which have no
    deadline: the word does not occur in the library's code."""
    root = Path(proctor.transfer.__file__).parent
    files = sorted(root.rglob("*.py"))
    assert len(files) > 20
    calls = [
        f"{path.name}:{node.lineno}"
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute | ast.Name)
        and "synchronize" in (node.attr if isinstance(node, ast.Attribute) else node.id)
    ]
    assert not calls


def test_3_a_transfer_runs_where_synchronising_the_device_raises(
    both: tuple[Publisher, Receiver], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*arguments: Any) -> None:
        raise AssertionError("the whole device was synchronised")

    monkeypatch.setattr(torch.cuda, "synchronize", never)
    monkeypatch.setattr(torch.accelerator, "synchronize", never)
    publisher, receiver = both
    with ThreadPoolExecutor(1) as pool:
        received = pool.submit(receiver.receive, SECONDS)
        publisher.publish({"a": torch.ones(1000)})
        assert torch.equal(received.result(SECONDS).tensors["a"], torch.ones(1000))


def test_3_a_trace_shows_it(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite")
    for start in range(0, 1000, 100):
        export.kernel(PACK, start, start + 20).kernel(NCCL, start + 25, start + 60, stream=20)
        export.call("cudaDeviceSynchronize_v3020", start + 20, start + 65).sync(start + 20, start + 65, kind=4)
    found = finding(export, "device-wide synchronisation")
    assert found.verdict is Verdict.FOUND
    assert found.figures == {"calls": 10, "total": 450, "context_syncs": 10}


# 4: one buffer


def test_4_one_buffer_warns() -> None:
    with pytest.warns(OneBufferWarning, match="packing and sending take turns; two overlap"):
        Ring(CpuDevice(), 8, 1)


@pytest.mark.parametrize(("kind", "what"), [("nccl", "Broadcast"), ("copies", "copy")])
def test_4_a_trace_shows_it(kind: str, what: str, tmp_path: Path) -> None:
    def turns(name: str, *, sent: int) -> Finding:
        export = Export(tmp_path / name)
        for start in range(0, 1000, 100):
            export.kernel(PACK, start, start + 40)
            if kind == "nccl":
                export.kernel(NCCL, start + sent, start + sent + 50, stream=20)
            else:
                export.copy(start + sent, start + sent + 50, kind=2, stream=20)
        return finding(export, "single buffer")

    found = turns("one.sqlite", sent=45)
    assert found.verdict is Verdict.FOUND
    assert what in found.evidence
    assert turns("two.sqlite", sent=30).verdict is Verdict.NOT_FOUND


# 5: too many buffers


def test_5_too_many_buffers_are_refused_in_bytes() -> None:
    with pytest.raises(UserError, match="more than two do not make a transfer faster"):
        Ring(CpuDevice(), 1 << 20, 8, cap_bytes=4 << 20)


# 6: both sides iterate in another order


def test_6_a_receiver_follows_the_manifest_and_not_its_own_order(both: tuple[Publisher, Receiver]) -> None:
    publisher, _ = both
    names = [f"w{index}" for index in range(9)]
    tensors = {name: torch.full((100,), float(index)) for index, name in enumerate(names)}
    into = {name: torch.zeros(100) for name in reversed(names)}
    receiver = Receiver("tcp:127.0.0.1:0", rank="r2", into=into, deadline=SECONDS)
    with ThreadPoolExecutor(1) as pool, Publisher([receiver.address], bucket_bytes=512, deadline=SECONDS) as other:
        received = pool.submit(receiver.receive, SECONDS)
        other.publish(tensors)
        received.result(SECONDS)
    receiver.close()
    assert publisher is not other
    assert all(torch.equal(into[name], tensors[name]) for name in names)


def test_6_a_source_in_another_order_than_agreed_is_refused(both: tuple[Publisher, Receiver]) -> None:
    publisher, receiver = both
    agreed = lay_out([("a", "F32", (100,)), ("b", "F32", (100,))])
    pairs = [("b", torch.ones(100)), ("a", torch.zeros(100))]  # of one shape: no size would tell
    with ThreadPoolExecutor(1) as pool:
        received = pool.submit(receiver.receive, SECONDS)
        for end in (lambda: publisher.publish(pairs, manifest=agreed), lambda: received.result(SECONDS)):
            with pytest.raises(TransferError, match="b came where a was due") as caught:
                end()
            assert caught.value.reason is Reason.MISMATCH


def test_6_another_order_is_another_manifest() -> None:
    places = [("a", "F32", (100,)), ("b", "F32", (100,))]
    assert lay_out(places).digest != lay_out(places[::-1]).digest


# 7: a collective is skipped


@pytest.fixture
def pair() -> Iterator[tuple[MappedSender, MappedReceiver]]:
    out, into = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    registry = Registry()
    sender, receiver = MappedSender(registry, [("r1", out)], 0.3), MappedReceiver(registry, into)
    yield sender, receiver
    sender.close()
    receiver.close()


def test_7_a_receiver_that_skips_a_transport_is_named_at_the_deadline(
    pair: tuple[MappedSender, MappedReceiver],
) -> None:
    sender, receiver = pair
    device = CpuDevice()
    with ThreadPoolExecutor(1) as pool:
        only_one = pool.submit(receive, device, Ring(device, NBYTES), receiver, expected(1))
        with pytest.raises(TransferError, match="r1: says nothing") as caught:
            publish(device, Ring(device, NBYTES), sender, expected(2))
        only_one.result(SECONDS)
    assert caught.value.reason is Reason.LATE


def test_7_a_bucket_that_was_skipped_is_noticed_by_its_number(pair: tuple[MappedSender, MappedReceiver]) -> None:
    sender, receiver = pair
    with Ring(CpuDevice(), NBYTES).next() as held:
        sender._number = 1
        sender.send(held, NBYTES)
    with Ring(CpuDevice(), NBYTES).next() as held, pytest.raises(TransferError, match="and 0 of 64 was announced"):
        receiver.receive(held, NBYTES)


def test_7_two_threads_cannot_mix_the_order_of_one_group() -> None:
    owner = Owner("the group")
    owner.check()
    with ThreadPoolExecutor(1) as pool, pytest.raises(WrongThreadError, match="matched in an order of chance"):
        pool.submit(owner.check).result()


# 8: the default stream in a thread


def test_8_the_default_stream_is_refused_in_every_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCuda(monkeypatch)
    with ThreadPoolExecutor(1) as pool, pytest.raises(RuntimeError, match="never run on the default stream"):
        pool.submit(lambda: CudaStream(torch.cuda.current_stream(0))).result()


def test_8_a_trace_shows_it(tmp_path: Path) -> None:
    def on_stream(stream: int) -> Finding:
        export = Export(tmp_path / f"{stream}.sqlite")
        export.kernel(NCCL, 0, 10, stream=stream).kernel(PACK, 0, 10, stream=20)
        export.connection.execute("CREATE TABLE TARGET_INFO_CUDA_CONTEXT_INFO (nullStreamId, processId, contextId)")
        export.connection.execute("INSERT INTO TARGET_INFO_CUDA_CONTEXT_INFO VALUES (7, 100, 1)")
        return finding(export, "default stream")

    found = on_stream(7)
    assert (found.verdict, found.figures["on_null_stream"]) == (Verdict.FOUND, 1)
    assert on_stream(9).verdict is Verdict.NOT_FOUND


# 9: a thread in the background holds the interpreter's lock


@pytest.fixture
def calls() -> Iterator[Counter[str]]:
    """How many Python functions threads that start from now on call and return from, by the threads' names."""
    found: Counter[str] = Counter()

    def count(frame: Any, event: str, argument: Any) -> None:
        found[threading.current_thread().name.rstrip("-0123456789")] += 1

    threading.setprofile(count)
    yield found
    threading.setprofile(None)


@pytest.mark.parametrize(
    ("transport", "thread"), [("stream", "proctor-publish"), ("gloo", "proctor-gloo"), ("cuda_ipc", "mapped-link")]
)
def test_9_the_thread_in_the_background_gets_whole_buckets_and_no_tensors(
    transport: str, thread: str, calls: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that slices tensors in Python takes the lock for each. These do as much for a bucket of 4,000 tensors
    as for a bucket of one, but for a few steps more or less of waiting: they get a buffer and a length."""
    registry = Registry()
    monkeypatch.setattr(gpu_opening, "CudaSharing", lambda: registry)

    def steps(tensors: int) -> int:
        calls.clear()
        receiver = Receiver("tcp:127.0.0.1:0", rank="r1", deadline=SECONDS)
        with (
            ThreadPoolExecutor(1) as pool,
            Publisher([receiver.address], transport=transport, bucket_bytes=1 << 20, deadline=SECONDS) as publisher,
        ):
            received = pool.submit(receiver.receive, SECONDS)
            publisher.publish({f"w{i}": torch.ones(64_000 // tensors) for i in range(tensors)})
            assert all(tensor.all() for tensor in received.result(SECONDS).tensors.values())
        receiver.close()
        return calls[thread]

    one, many = steps(1), steps(4000)
    assert one
    assert many < one + 4000  # a call for each would be counted at its begin and its end
