"""Common blocks, reads, releases and sums: what needs no torch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.audit.attention.prefix import common_blocks, common_prefix
from proctor.audit.attention.reads import kv_reads
from proctor.audit.attention.sums import sums
from proctor.audit.attention.versions import cascade_default
from proctor.rows import UserError


@given(
    shared=st.integers(0, 200),
    own=st.lists(st.integers(0, 50), min_size=2, max_size=6),
    unrelated=st.integers(0, 3),
    size=st.sampled_from([1, 16, 32]),
)
def test_the_count_of_blocks_is_that_of_their_references(
    shared: int, own: list[int], unrelated: int, size: int
) -> None:
    whole = [f"shared {block}" for block in range(shared // size)]
    tables = [
        whole + [f"{request}:{block}" for block in range((shared % size + tokens) // size + 1)]
        for request, tokens in enumerate(own)
    ]
    tables += [[f"other {request}"] for request in range(unrelated)]
    assert common_blocks(tables) == common_prefix(shared, block_size=size, unrelated=unrelated).blocks


def test_one_unrelated_request_takes_the_prefix_from_all() -> None:
    together = [["a", "b", f"own {request}"] for request in range(20)]
    assert common_blocks(together) == 2
    assert common_blocks([*together, ["else"]]) == 0
    assert "no block is common" in common_prefix(512, unrelated=1).why[0]


def test_blocks_after_the_first_difference_do_not_count() -> None:
    assert common_blocks([["a", "x", "c"], ["a", "y", "c"]]) == 1
    assert common_blocks([]) == 0


def test_the_prefix_is_whole_blocks_of_what_all_have_computed() -> None:
    assert common_prefix(400).length == 400
    assert common_prefix(401).length == 400
    assert common_prefix(401).why == ("401 tokens are 25 whole blocks of 16: 400 tokens",)
    assert common_prefix(512, computed=300).length == 288
    assert common_prefix(512, computed=0).length == 0
    assert common_prefix(512, computed=10_000).length == 512


def test_the_reads_of_sixteen_requests_with_400_common_tokens() -> None:
    found = kv_reads(400, 100, 16)
    assert (found.single, found.split, found.ratio) == (8_000, 2_000, 4.0)
    assert (found.prefix_reads, found.redundant) == (6_400, 6_000)
    assert found.redundant_share == 0.75
    assert found.redundant_of_prefix == 0.9375
    assert found.prefix_reads / found.single == 0.8  # what is called "80 % waste" counts the first read, too


def test_a_prefix_is_read_again_for_every_128_requests() -> None:
    assert kv_reads(512, 0, 128).split == 512
    assert kv_reads(512, 0, 129).split == 1024
    assert kv_reads(0, 7, 3).redundant_of_prefix == 0
    with pytest.raises(UserError, match="nothing to count"):
        kv_reads(0, 0, 4)


def test_three_numbers_have_several_sums() -> None:
    double, single, half = sums()
    assert double.left == "1.0000000005838672e-07"
    assert (double.right, double.outer) == ("9.999999994736442e-08", "1e-07")
    assert single.left == "1.1920929e-07"
    assert half.left == "0.0"
    assert len({double.left, double.right, double.outer}) == 3


@pytest.mark.parametrize(
    ("version", "states"),
    [
        ("0.16.0", ("on",)),
        ("v0.17.1", ("on",)),
        ("0.18.0", ("on", "off")),
        ("0.18.1", ("off",)),
        ("0.25", ("off",)),
        ("0.31.0.post1", ("off",)),
        ("0.31.4", ("off", "absent")),
        ("0.32.0", ("absent",)),
        ("1.0", ("absent",)),
        ("0.9.2", ("on", "off", "absent")),
    ],
)
def test_what_a_release_does_is_known_from_its_neighbours(version: str, states: tuple[str, ...]) -> None:
    assert cascade_default(version).states == states
