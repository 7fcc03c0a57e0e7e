"""The gate of cascade attention: every condition in order, the cost model, and where it first switched."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.audit.attention.gate import cascade_gate, cost_model, first_activation
from proctor.audit.attention.step import Step
from proctor.rows import UserError

H200, A100, L40S = 132, 108, 142


def step(requests: int = 20, shared: int = 512, **changes: Any) -> Step:
    changes = {"query_heads": 16, "kv_heads": 8, "sms": H200, "query_lens": (1,) * requests} | changes
    return Step(shared=shared, **changes)


def decision(requests: int = 20, shared: int = 512, **changes: Any) -> tuple[bool | None, str]:
    found = cascade_gate(step(requests, shared, **changes))
    return found.cascade, found.decided_by


@pytest.mark.parametrize("query_heads", [16, 32, 64])
def test_eight_kv_heads_on_132_multiprocessors_first_split_at_17_requests(query_heads: int) -> None:
    for shared in range(256, 16385, 64):
        assert first_activation(step(shared=shared, query_heads=query_heads)) == 17


@pytest.mark.parametrize(
    ("query_heads", "kv_heads", "sms", "first"),
    [(28, 4, H200, 34), (16, 8, A100, 14), (32, 8, A100, 14), (16, 8, L40S, 18), (64, 8, L40S, 18)],
)
def test_other_heads_and_gpus_switch_elsewhere(query_heads: int, kv_heads: int, sms: int, first: int) -> None:
    for shared in (256, 400, 512, 4096, 16384):
        assert first_activation(step(shared=shared, query_heads=query_heads, kv_heads=kv_heads, sms=sms)) == first


def test_sixteen_requests_with_a_system_prompt_do_not_pass() -> None:
    found = cascade_gate(step(requests=16))
    assert (found.cost.cascade, found.cost.decoding) == (4, 4)
    assert (found.cascade, found.decided_by) == (False, "cost model")
    assert decision(requests=17) == (True, "cost model")


@pytest.mark.parametrize(
    ("changes", "gate"),
    [
        ({"version": "0.32.0"}, "release"),
        ({"version": "0.18.1"}, "setting"),
        ({"batch_invariant": True}, "setting"),
        ({"disabled": True}, "setting"),
        ({"prefix_caching": False}, "common blocks"),
        ({"unrelated": 1}, "common blocks"),
        ({"shared": 15}, "common blocks"),
        ({"shared": 255}, "prefix length"),
        ({"computed": 0}, "prefix length"),
        ({"computed": 260, "block_size": 128, "shared": 1024}, "cost model"),
        ({"alibi": True}, "attention variant"),
        ({"sliding_window": True}, "attention variant"),
        ({"local_attention": True}, "attention variant"),
        ({"requests": 7}, "requests"),
        ({"dcp": 2}, "context parallelism"),
        ({"requests": 16}, "cost model"),
    ],
)
def test_each_gate_says_no(changes: dict[str, Any], gate: str) -> None:
    if gate == "cost model":
        changes = {"requests": 16} | changes
    assert decision(**changes) == (False, gate)


def test_a_step_that_is_not_all_decoding_skips_the_cost_model() -> None:
    mixed = (1,) * 7 + (30,)
    assert decision(query_lens=mixed) == (True, "flash-decoding")
    assert decision(requests=8, kv_heads=16) == (True, "flash-decoding")
    assert decision(requests=8) == (False, "cost model")


def test_gates_after_the_one_that_decides_are_not_asked() -> None:
    outcomes = [gate.outcome for gate in cascade_gate(step(requests=7, dcp=2)).gates]
    assert outcomes == ["passes"] * 5 + ["does not split"] + ["not asked"] * 3


def test_batch_invariant_mode_wins_over_the_setting() -> None:
    assert decision(batch_invariant=True, disabled=False) == (False, "setting")


@pytest.mark.parametrize(
    ("version", "disabled", "cascade"),
    [
        ("0.16.0", None, True),
        ("0.17.0", None, True),
        ("0.17.1", None, True),
        ("0.18.0", None, None),  # turned off somewhere between 0.17.1 and 0.18.1
        ("0.18.1", None, False),
        ("0.18.1", False, True),
        ("0.31.0", False, True),
        ("0.31.1", None, False),  # off or gone, either way not used
        ("0.31.1", False, None),
        ("0.32.0", False, False),
        ("0.40.0", None, False),
        ("0.15.0", None, None),
    ],
)
def test_the_release_decides_where_it_is_known(version: str, disabled: bool | None, cascade: bool | None) -> None:
    assert cascade_gate(step(version=version, disabled=disabled)).cascade is cascade


def test_where_the_release_is_unknown_a_no_of_another_gate_still_counts() -> None:
    assert decision(version="0.18.0", requests=4) == (False, "requests")


def test_it_may_never_split() -> None:
    assert first_activation(step(unrelated=1)) is None
    assert first_activation(step(shared=200)) is None
    assert first_activation(step(version="0.33.0")) is None


@given(
    prefix=st.integers(1, 20_000),
    n=st.integers(1, 300),
    kv=st.sampled_from([1, 2, 4, 8, 16]),
    group=st.integers(1, 200),
    sms=st.integers(1, 160),
)
def test_the_cost_model_counts_tiles_and_waves(prefix: int, n: int, kv: int, group: int, sms: int) -> None:
    made = cost_model(step(requests=n, kv_heads=kv, query_heads=kv * group, sms=sms), prefix)
    tiles = len(range(0, prefix, 128))
    blocks = sum(1 for _ in range(kv * group) for _ in range(0, n, 128))
    work = n * kv * len(range(0, group, 128)) * tiles
    assert made.cascade == len(range(0, blocks, sms)) * tiles
    assert made.decoding == len(range(0, work, sms))


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"query_heads": 10}, "heads"),
        ({"kv_heads": 0}, "heads"),
        ({"sms": 0}, "sms"),
        ({"dcp": 0}, "dcp"),
        ({"query_lens": ()}, "query lengths"),
        ({"query_lens": (1, 0)}, "query lengths"),
        ({"block_size": 0}, "block size"),
        ({"shared": -1}, "shared tokens"),
        ({"unrelated": -1}, "unrelated"),
        ({"computed": -1}, "computed tokens"),
        ({"version": "newest"}, "vLLM"),
    ],
)
def test_a_step_that_cannot_be_is_told(changes: dict[str, Any], where: str) -> None:
    with pytest.raises(UserError) as told:
        cascade_gate(step(**changes))
    assert told.value.where == where
