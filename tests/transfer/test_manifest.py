"""Places of tensors, and the frames that they travel in."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.manifest import ALIGN, ITEM_BYTES, Entry, Manifest, aligned, lay_out
from proctor.transfer.sums import rolling

SHAPES = st.lists(st.integers(0, 9), max_size=3).map(tuple)
TOLD = st.lists(st.tuples(st.sampled_from(sorted(ITEM_BYTES)), SHAPES), max_size=12)


@given(TOLD, st.integers(1, 5))
def test_frames_cover_the_arena_and_name_what_is_in_them(told: list[tuple[str, tuple[int, ...]]], size: int) -> None:
    manifest = lay_out((str(index), dtype, shape) for index, (dtype, shape) in enumerate(told))
    buckets = manifest.buckets(size * ALIGN)
    assert [bucket.sequence for bucket in buckets] == list(range(len(buckets)))
    assert [bucket.start for bucket in buckets] == [number * size * ALIGN for number in range(len(buckets))]
    assert sum(bucket.nbytes for bucket in buckets) == manifest.nbytes
    for bucket in buckets:
        inside = [
            index
            for index, entry in enumerate(manifest.entries)
            if entry.nbytes and entry.offset < bucket.stop and entry.end > bucket.start
        ]
        first, count = (inside[0], inside[-1] - inside[0] + 1) if inside else (0, 0)
        assert (bucket.first, bucket.count) == (first, count)


@given(TOLD)
def test_places_are_aligned_and_nobody_elses(told: list[tuple[str, tuple[int, ...]]]) -> None:
    manifest = lay_out((str(index), dtype, shape) for index, (dtype, shape) in enumerate(told))
    end = 0
    for entry in manifest.entries:
        assert entry.offset % ALIGN == 0
        assert end <= entry.offset < end + ALIGN
        end = entry.end
    assert manifest.nbytes == aligned(end)
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest


@pytest.mark.parametrize("nbytes", [0, 1, ALIGN - 1, ALIGN + 1, -ALIGN])
def test_a_frame_has_whole_places(nbytes: int) -> None:
    with pytest.raises(ValueError, match="multiple of"):
        lay_out([("a", "U8", (3,))]).buckets(nbytes)


A, B = Entry("a", "F32", (3,), 0), Entry("b", "F32", (3,), ALIGN)


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        (Manifest((A, msgspec.structs.replace(B, offset=0))), "not free"),
        (Manifest((A, msgspec.structs.replace(B, offset=12))), "not aligned"),
        (Manifest((B, A)), "not free"),
        (Manifest((A, msgspec.structs.replace(B, name="a"))), "there twice"),
        (Manifest((msgspec.structs.replace(A, dtype="F4"),)), "no tensor"),
        (Manifest((msgspec.structs.replace(A, shape=(-1,)),)), "no tensor"),
        (Manifest((A,), {"c": "b"}), "tied to b"),
        (Manifest((A, B), {"b": "a"}), "tied to a"),
    ],
)
def test_what_cannot_be_is_refused(manifest: Manifest, why: str) -> None:
    with pytest.raises(TransferError, match=why) as caught:
        Manifest.from_bytes(manifest.to_bytes())
    assert caught.value.reason is Reason.MISMATCH


@given(st.binary(max_size=60))
def test_any_bytes_are_a_manifest_or_refused(data: bytes) -> None:
    try:
        manifest = Manifest.from_bytes(data)
    except TransferError:
        return
    manifest.check()


def test_the_rolling_hash_follows_places_and_order() -> None:
    one = lay_out([("a", "F32", (3,)), ("b", "F32", (3,))])
    other = lay_out([("b", "F32", (3,)), ("a", "F32", (3,))])  # the same bytes would now mean something else
    found = [rolling(one.digest, sums) for sums in ([], [1], [1, 2], [2, 1], [1, 2, 0])]
    found.append(rolling(other.digest, [1, 2]))
    assert len(set(found)) == 6
