"""Buckets hold the bytes of the tensors at their places, whatever the tensors look like."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from proctor.rows import UserError
from proctor.transfer.devices.cpu import CpuDevice
from proctor.transfer.devices.virtual import Order, VirtualDevice
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.manifest import Manifest
from proctor.transfer.packing import Packer, blocks
from proctor.transfer.slots import Ring
from proctor.transfer.tensors import as_bytes, plan


def packed(manifest: Manifest, tensors: object, bucket_bytes: int) -> bytes:
    ring = Ring(CpuDevice(), bucket_bytes, 2)
    packer = Packer(manifest, tensors)  # type: ignore[arg-type]
    arena = b""
    for bucket in manifest.buckets(bucket_bytes):
        with ring.next() as held:
            held.part(bucket.nbytes).fill_(255)  # what an earlier bucket left
            packer.pack(bucket, held, lambda: None)
            arena += bytes(memoryview(held.part(bucket.nbytes).numpy()))
    packer.finish()
    return arena


def laid_out(tensors: dict[str, torch.Tensor]) -> bytes:
    layout = plan(tensors)
    arena = bytearray(layout.manifest.nbytes)
    for entry, source in zip(layout.manifest.entries, layout.sources, strict=True):
        arena[entry.offset : entry.end] = bytes(memoryview(as_bytes(source).numpy()))
    return bytes(arena)


@st.composite
def strided(draw: st.DrawFn) -> torch.Tensor:
    shape = draw(st.lists(st.integers(1, 7), min_size=0, max_size=4))
    kind = draw(st.sampled_from([torch.int8, torch.bfloat16, torch.float32, torch.complex64]))
    count = int(torch.tensor(shape).prod()) if shape else 1
    tensor = (torch.arange(count) % 120).to(kind).reshape(shape)
    tensor = tensor.permute(draw(st.permutations(range(len(shape)))))
    if shape and draw(st.booleans()):
        tensor = tensor[..., :: draw(st.integers(1, 3))]
    if kind.is_complex and draw(st.booleans()):
        tensor = (tensor * (1 + 2j)).conj()
    if kind.is_complex and draw(st.booleans()):
        tensor = tensor.imag  # of a conjugate: lazily negated
    return tensor


@given(st.lists(strided(), min_size=1, max_size=6), st.sampled_from([256, 512, 1024, 1 << 16]))
def test_strided_conjugate_and_negative_views_are_packed_as_what_they_mean(
    tensors: list[torch.Tensor], bucket_bytes: int
) -> None:
    named = {str(index): tensor for index, tensor in enumerate(tensors)}
    manifest = plan(named).manifest
    assert packed(manifest, named, bucket_bytes) == laid_out(named)


@given(strided(), st.data())
def test_blocks_are_the_elements_of_a_range_in_order(tensor: torch.Tensor, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, tensor.numel() - 1))
    stop = data.draw(st.integers(first + 1, tensor.numel()))
    found = [element for block in blocks(tensor, first, stop) for element in block.reshape(-1).tolist()]
    assert found == tensor.reshape(-1).tolist()[first:stop]


def test_odd_sizes_before_wider_types_are_aligned() -> None:
    """vllm #57665: an fp16 tensor of 3 elements made the view of what followed impossible."""
    tensors = {
        "half": torch.arange(3).half(), "single": torch.randn(5), "bytes": torch.arange(7).to(torch.int8),
        "double": torch.randn(3).double(), "flag": torch.tensor([True]),
        "eight": torch.randn(3).to(torch.float8_e4m3fn), "last": torch.randn(2),
    }  # fmt: skip
    assert packed(plan(tensors).manifest, tensors, 256) == laid_out(tensors)


@pytest.mark.parametrize("changed", [torch.zeros(4, dtype=torch.float16), torch.zeros(2, 2)])
def test_a_source_that_changes_type_or_shape_is_refused(changed: torch.Tensor) -> None:
    """The well-known code takes metadata before a callback changes the tensor, and bytes after it."""
    manifest = plan({"a": torch.zeros(4)}).manifest
    with pytest.raises(TransferError, match="announced as F32"):
        packed(manifest, [("a", changed)], 256)


def test_a_source_that_skips_or_adds_or_reorders_is_refused() -> None:
    tensors = {"a": torch.zeros(4), "b": torch.ones(4)}
    manifest = plan(tensors).manifest
    for wrong, message in [
        ([("b", tensors["b"]), ("a", tensors["a"])], "b came where a was due"),
        ([("a", tensors["a"])], "b did not come"),
        ([*tensors.items(), ("c", tensors["a"])], "c came behind the last"),
    ]:
        with pytest.raises(TransferError, match=message) as raised:
            packed(manifest, wrong, 256)
        assert raised.value.reason is Reason.MISMATCH


def test_names_are_compared_both_ways() -> None:
    manifest = plan({"a": torch.zeros(4), "b": torch.ones(4)}).manifest
    with pytest.raises(TransferError, match="missing: b; not expected: c"):
        Packer(manifest, {"a": torch.zeros(4), "c": torch.ones(4)})


def test_what_is_no_longer_tied_is_refused() -> None:
    shared = torch.randn(4)
    manifest = plan({"embed": shared, "head": shared}).manifest
    assert manifest.aliases == {"head": "embed"}
    with pytest.raises(TransferError, match="no longer tied: head"):
        Packer(manifest, {"embed": shared, "head": shared.clone()})
    with pytest.raises(TransferError, match="no longer tied: head"):
        packed(manifest, [("embed", shared), ("head", shared.clone())], 256)
    assert packed(manifest, [("embed", shared), ("head", shared)], 256) == laid_out({"embed": shared})


def test_an_exception_of_the_source_has_its_name() -> None:
    def source() -> Iterator[tuple[str, torch.Tensor]]:
        yield "a", torch.zeros(100)
        raise OSError("disk on fire")

    manifest = plan({"a": torch.zeros(100), "b": torch.zeros(100)}).manifest
    with pytest.raises(TransferError, match="OSError: disk on fire") as raised:
        packed(manifest, source(), 256)
    assert (raised.value.reason, raised.value.rank) == (Reason.EXCEPTION, "publisher")


@pytest.mark.parametrize("order", ["newest", "late", "early", "random"])
def test_a_bucket_waits_for_what_the_caller_has_enqueued(order: Order) -> None:
    """vllm-ascend #12713: weights were packed while they were still being written."""
    device = VirtualDevice(order)
    tensors = {"a": torch.zeros(64), "t": torch.zeros(4, 4).t()}
    for tensor in tensors.values():
        device.caller.run(lambda tensor=tensor: tensor.fill_(7.0), tensor)
    ring = Ring(device, 1024, 2)
    manifest = plan(tensors).manifest
    packer = Packer(manifest, tensors)
    [bucket] = manifest.buckets(1024)
    with ring.next() as held:
        packer.pack(bucket, held, lambda: held.stream.wait(device.ready()))
        held.stream.record().wait()
        found = held.part(bucket.nbytes).clone()
    device.finish()
    assert found[:256].view(torch.float32).tolist() == [7.0] * 64
    assert found[256:320].view(torch.float32).tolist() == [7.0] * 16


def test_without_that_wait_the_bucket_is_wrong() -> None:
    device = VirtualDevice("newest")
    tensors = {"a": torch.zeros(64)}
    device.caller.run(lambda: tensors["a"].fill_(7.0), tensors["a"])
    manifest = plan(tensors).manifest
    [bucket] = manifest.buckets(1024)
    with Ring(device, 1024, 2).next() as held:
        Packer(manifest, tensors).pack(bucket, held, lambda: None)
        held.stream.record().wait()
        assert held.part(256).view(torch.float32).tolist() != [7.0] * 64
    device.finish()


def test_packing_makes_no_copy_of_a_tensor() -> None:
    """sglang #8076: whole-model copies ran out of memory. Strided tensors were copied whole, too."""
    strided = torch.zeros(1024, 1024).t()
    manifest = plan({"a": strided}).manifest
    peak = 0
    make, ring = torch.Tensor.contiguous, Ring(CpuDevice(), 1 << 16, 2)
    packer = Packer(manifest, {"a": strided})
    with pytest.MonkeyPatch.context() as patch:

        def counted(tensor: torch.Tensor, **options: object) -> torch.Tensor:
            nonlocal peak
            peak = max(peak, 0 if tensor.is_contiguous() else tensor.nbytes)
            return make(tensor)

        patch.setattr(torch.Tensor, "contiguous", counted)
        tracemalloc.start()
        for bucket in manifest.buckets(1 << 16):
            with ring.next() as held:
                packer.pack(bucket, held, lambda: None)
        python_peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak == 0
    assert python_peak < 1 << 17


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({3: torch.ones(2)}, "the name 3 is no text"),
        ({None: torch.ones(2)}, "the name None is no text"),
        ({"a\ud800": torch.ones(2)}, "is no text"),
        ({"a": [1, 2]}, "a: cannot be transferred: it is a list"),
        ({"a": None}, "it is a NoneType"),
        ({"a": torch.ones(2).to_sparse()}, "torch.sparse_coo"),
        ({"a": torch.empty(2, device="meta")}, "device meta"),
    ],
)
def test_what_is_no_state_dict_is_refused_by_name(tensors: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(UserError) as raised:
        plan(tensors)
    assert message in str(raised.value)


@pytest.mark.parametrize("name", ["", "../../x", "a\0b", "a\nb", "\u202eabc", "é", "x" * 100_000])
def test_names_may_be_any_text(name: str) -> None:
    assert [*plan({name: torch.ones(2)}).manifest.names] == [name]
