"""Weights in sealed shared memory: whole or not there, views without copies, ties, damage."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from proctor.rows import UserError
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.manifest import lay_out
from proctor.transfer.published import BUCKET_BYTES, Draft, Published
from proctor.transfer.publishing import draft_for, publish
from proctor.transfer.sums import rolling
from proctor.transfer.tensors import DTYPES, as_bytes
from tests.leaks import descriptors
from tests.transfer.child import child


def some(dtype: torch.dtype, shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    """Any bytes at all, as a tensor of that type; for bool, those that are one."""
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randint(0, 256, (*shape, torch.empty((), dtype=dtype).element_size()), generator=generator)
    flat = raw.to(torch.uint8).view(-1)
    return (
        (flat % 2 if dtype == torch.bool else flat).view(dtype).view(shape) if flat.numel() else raw.to(dtype)[..., 0]
    )


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bit for bit: NaN equals itself."""
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(as_bytes(one), as_bytes(other))


def state() -> dict[str, torch.Tensor]:
    found = {
        f"{name}.{number}": some(dtype, shape, number)
        for name, dtype in DTYPES.items()
        for number, shape in enumerate([(), (0, 3), (1,), (3,), (5, 7)])
    }
    found["strided"] = torch.arange(24.0).view(4, 6).t()
    found["part"] = torch.arange(100, dtype=torch.int32)[10:90:7]
    found["conj"] = torch.complex(torch.arange(3.0), torch.arange(3.0)).conj()
    found["neg"] = torch.complex(torch.arange(3.0), torch.arange(3.0)).conj().imag
    found["needs_grad"] = torch.nn.Parameter(torch.arange(5.0))
    found["tied"] = found["F32.4"]
    found["head"] = found["needs_grad"]
    return found


def test_everything_comes_back_bit_for_bit() -> None:
    tensors = state()
    with publish(tensors, name="ck") as published, Published.attach(published.path) as attached:
        views = attached.tensors()
        assert views.keys() == tensors.keys()
        assert all(same(views[name], tensors[name]) for name in tensors)
        assert views["tied"] is views["F32.4"]
        assert views["head"] is views["needs_grad"]
        assert attached.manifest.aliases == {"tied": "F32.4", "head": "needs_grad"}
        assert attached.label == published.label
        assert attached.label.name == "ck"
        base = np.frombuffer(attached.data, np.uint8).ctypes.data
        for entry in attached.manifest.entries:  # views of the memory itself, at aligned places
            if entry.nbytes:
                assert views[entry.name].data_ptr() == base + entry.offset
                assert views[entry.name].data_ptr() % 256 == 0


@given(
    st.dictionaries(
        st.text(max_size=8),
        st.tuples(st.sampled_from(sorted(DTYPES)), st.lists(st.integers(0, 5), max_size=3), st.integers(0, 99)),
        max_size=12,
    )
)
def test_any_state_dict_comes_back(told: dict[str, tuple[str, list[int], int]]) -> None:
    names = [name for name in told if name.isascii() or name.isprintable()]
    tensors = {name: some(DTYPES[told[name][0]], tuple(told[name][1]), told[name][2]) for name in names}
    with publish(tensors) as published, Published.attach(published.path) as attached:
        views = attached.tensors()
        assert views.keys() == tensors.keys()
        assert all(same(views[name], tensors[name]) for name in tensors)


def test_tensors_that_lie_in_several_buckets() -> None:
    large = {
        "b": some(torch.float32, (BUCKET_BYTES // 4 + 100,)),
        "a": some(torch.uint8, (3,)),
        "c": some(torch.int64, (9,)),
    }
    with publish(large) as published:
        assert len(published.buckets) == 2
        published.verify()
        assert all(same(view, large[name]) for name, view in published.tensors().items())


def test_the_sums_are_those_of_the_protocol() -> None:
    """A receiver that got the same buckets over a wire computes the same rolling hash."""
    import xxhash

    with publish(state()) as published:
        sums = [xxhash.xxh3_64_intdigest(published.data[b.start : b.stop]) for b in published.buckets]
        assert published.rolling == rolling(published.manifest.digest, sums)


def test_the_order_of_the_dict_and_the_name_do_not_matter() -> None:
    tensors = {name: tensor for name, tensor in state().items() if name not in ("tied", "head")}
    backwards = {name: tensors[name] for name in reversed([*tensors])}
    changed = tensors | {"BF16.4": tensors["BF16.4"] * 2}
    with publish(tensors, name="x") as one, publish(backwards) as two, publish(changed) as three:
        assert one.label.content == two.label.content
        assert one.label.content != three.label.content


def test_the_first_of_tied_names_has_the_place() -> None:
    one = torch.ones(3)
    with publish({"embed": one, "a_head": one}) as published, publish({"embed": one}) as alone:
        assert published.manifest.aliases == {"a_head": "embed"}
        assert published.label.content == alone.label.content  # as in a file, which has no ties


def test_files_are_part_of_the_content() -> None:
    tensors = {"a": torch.ones(3)}
    texts: list[dict[str, bytes]] = [{}, {"config.json": b"{}"}, {"config.json": b"{ }"}, {"other.json": b"{}"}]
    ids = set()
    for files in texts:
        with publish(tensors, files=files) as published:
            ids.add(published.label.content)
    assert len(ids) == 4


def test_a_draft_made_ahead() -> None:
    tensors = state()
    with publish(tensors, draft=draft_for(tensors, name="ahead", prefault=True)) as published:
        published.verify()
        assert published.label.name == "ahead"
        assert all(same(view, tensors[name]) for name, view in published.tensors().items())
    with pytest.raises(UserError, match="made for other names"):
        publish({"a": torch.ones(3)}, draft=draft_for({"a": torch.ones(4)}))


def test_nothing_is_readable_before_it_is_finished() -> None:
    draft = Draft(lay_out([("a", "F32", (4,))]))
    path = draft._arena.path
    for attempt in range(2):
        with pytest.raises(TransferError, match="not sealed") as caught:
            Published.attach(path)
        assert caught.value.reason is Reason.MISMATCH
        if attempt == 0:
            draft.put(draft.buckets[0], [memoryview(bytes(256))])
    with draft.finish() as published:
        Published.attach(path).close()
        assert published.tensors()["a"].tolist() == [0.0] * 4


def test_an_incomplete_draft_is_not_finished() -> None:
    draft = Draft(lay_out([("a", "U8", (2 * BUCKET_BYTES,))]))
    zeros = memoryview(bytes(BUCKET_BYTES))
    draft.put(draft.buckets[1], [zeros])
    with pytest.raises(RuntimeError, match="1 of 2 buckets"):
        draft.finish()
    with pytest.raises(ValueError, match="has 16777216 bytes"):
        draft.put(draft.buckets[0], [zeros[:-1]])
    draft.close()


def test_buckets_come_from_threads_in_any_order() -> None:
    data = some(torch.uint8, (3 * BUCKET_BYTES + 5,))
    draft = Draft(lay_out([("a", "U8", (data.numel(),))]))
    whole = memoryview(np.concatenate([data.numpy(), np.zeros(251, np.uint8)]))
    threads = [
        threading.Thread(target=draft.put, args=(bucket, [whole[bucket.start : bucket.stop]]))
        for bucket in reversed(draft.buckets)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with draft.finish() as published, publish({"a": data}) as plain:
        published.verify()
        assert published.rolling == plain.rolling


def test_a_fault_while_it_is_written_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(draft: Draft, bucket: object, parts: object) -> None:
        raise OSError("planted")

    monkeypatch.setattr(Draft, "put", broken)
    with pytest.raises(OSError, match="planted"):
        publish({"a": torch.zeros(8 * BUCKET_BYTES, dtype=torch.uint8)})
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("proctor-publish")]


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        (torch.ones(3).to_sparse(), "layout"),
        (torch.empty(3, device="meta"), "no memory"),
        (torch.zeros(3, dtype=torch.uint4), "its type"),
    ],
)
def test_what_is_no_plain_memory_is_refused(odd: torch.Tensor, why: str) -> None:
    with pytest.raises(UserError, match=why) as caught:
        publish({"fine": torch.ones(3), "odd": odd})
    assert caught.value.where == "odd"


def test_a_view_outlives_everything() -> None:
    tensors = state()
    published = publish(tensors)
    attached = Published.attach(published.path)
    view = attached.tensors()["F32.4"]
    published.close()
    attached.close()
    del published, attached
    gc.collect()
    junk = [bytearray(1 << 20) for _ in range(8)]  # would take the place of memory that had been given back
    assert same(view, tensors["F32.4"])
    del junk


def test_views_are_writable_and_nobody_else_sees_it() -> None:
    with publish({"a": torch.arange(4.0)}) as published, Published.attach(published.path) as attached:
        attached.tensors()["a"][0] = 9.0  # a warning would be an error in these tests
        assert published.tensors()["a"].tolist() == [0.0, 1.0, 2.0, 3.0]
        published.verify()
        with pytest.raises(TransferError, match="checksum differs at a") as caught:
            attached.verify()
        assert caught.value.reason is Reason.CORRUPT


READER = """
    import warnings, sys
    from proctor.transfer.published import Published
    from proctor.transfer.errors import TransferError
    assert "torch" not in sys.modules
    published = Published.attach(input())
    tensors = published.tensors()
    print(published.label.content, float(tensors["a"].sum()), flush=True)
    published.close()
    input()
    print(float(tensors["a"].sum()), flush=True)
"""


def test_another_process_reads_and_outlives_the_publisher() -> None:
    published = publish({"a": torch.arange(100.0)}, name="ck")
    with child(READER) as reader:
        reader.tell(published.path)
        assert reader.hears() == f"{published.label.content} 4950.0"
        published.close()
        del published
        reader.tell()
        assert reader.hears() == "4950.0"
        assert reader.ends() == 0


def test_a_publisher_that_is_killed_half_way_leaves_nothing_readable() -> None:
    code = """
        from proctor.transfer.manifest import lay_out
        from proctor.transfer.published import BUCKET_BYTES, Draft
        draft = Draft(lay_out([("a", "U8", (2 * BUCKET_BYTES,))]))
        draft.put(draft.buckets[0], [memoryview(bytes(BUCKET_BYTES))])
        print(draft._arena.path, flush=True)
        input()
    """
    with child(code) as publisher:
        path = publisher.hears()
        with pytest.raises(TransferError, match="not sealed"):
            Published.attach(path)
        publisher.kill()
        with pytest.raises(TransferError) as caught:
            Published.attach(path)
        assert caught.value.reason is Reason.DEAD


def test_fifty_of_them_leave_no_descriptor() -> None:
    tensors = {"a": torch.arange(100.0)}

    def once() -> None:
        with publish(tensors) as published, Published.attach(published.path) as attached:
            assert attached.tensors()["a"][3] == 3.0

    once()
    before = descriptors()
    for _ in range(50):
        once()
    assert descriptors() <= before
