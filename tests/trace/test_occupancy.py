"""Occupancy, waves and the limits of a GPU: by hand, by names, and what cannot be known."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.rows import UserError
from proctor.trace import open_trace
from proctor.trace.launches.architectures import architectures, product, product_names
from proctor.trace.launches.gpu_limits import GpuLimits, named_limits
from proctor.trace.launches.kernel_occupancy import occupancy_of_trace
from proctor.trace.launches.occupancy import BLOCKS, REGISTERS, SHARED, WARPS, Limits, limits_of, occupancy, room_for
from proctor.trace.launches.waves import waves, waves_in_words
from proctor.trace.model import Gpu
from tests.trace.exports import Export

KIB = 1024


def h100() -> Limits:
    return named_limits("H100")


def test_one_block_is_held_by_registers_and_shared_memory_alike() -> None:
    """nvjet on an H100: 168 registers take 5,376 a warp, so 3 warps a quarter; 213,196 + 1,024 bytes fit once."""
    found = occupancy(h100(), threads=384, registers=168, shared=213_196)
    assert (found.blocks, found.warps, found.share) == (1, 12, 12 / 64)
    assert found.limiters == (REGISTERS, SHARED)
    assert found.allowed == {WARPS: 5, BLOCKS: 32, REGISTERS: 1, SHARED: 1}


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks", "limiters"),
    [
        (32, 16, 0, 32, (BLOCKS,)),
        (1024, 32, 0, 2, (WARPS, REGISTERS)),
        (1024, 32, 64 * KIB, 2, (WARPS, REGISTERS)),
        (128, 255, 0, 2, (REGISTERS,)),
        (128, 24, 100 * KIB, 2, (SHARED,)),
        (1, 0, 0, 32, (BLOCKS,)),
    ],
)
def test_what_binds(threads: int, registers: int, shared: int, blocks: int, limiters: tuple[str, ...]) -> None:
    found = occupancy(h100(), threads=threads, registers=registers, shared=shared)
    assert (found.blocks, found.limiters) == (blocks, limiters)


def test_a_launch_that_cannot_fit_says_why() -> None:
    large = occupancy(h100(), threads=1025, registers=16, shared=0)
    assert (large.blocks, large.share, large.limiters) == (0, 0.0, (WARPS,))
    assert large.why == "1,025 threads a block: at most 1,024"
    greedy = occupancy(h100(), threads=1024, registers=65, shared=232_449)
    assert greedy.limiters == (REGISTERS, SHARED)
    assert "65 registers for each of 1,024 threads" in greedy.why
    assert "232,449 bytes of shared memory a block: at most 232,448" in greedy.why
    assert occupancy(h100(), threads=0, registers=16, shared=0).why == "a block of 0 threads"


def test_what_the_trace_does_not_say_makes_an_upper_bound() -> None:
    found = occupancy(h100(), threads=128, registers=None, shared=None)
    assert (found.blocks, found.unknown) == (16, (REGISTERS, SHARED))
    assert occupancy(h100(), threads=128, registers=0, shared=0).unknown == ()


def test_the_driver_reserves_shared_memory_from_compute_capability_8_on() -> None:
    volta = limits_of(Gpu(device=0, name="Tesla V100-SXM2-16GB"))
    assert volta is not None
    assert occupancy(volta, threads=32, registers=16, shared=0).allowed.get(SHARED) is None
    assert occupancy(volta, threads=32, registers=16, shared=48 * KIB).allowed[SHARED] == 2
    assert occupancy(h100(), threads=32, registers=16, shared=0).allowed[SHARED] == 228
    assert occupancy(h100(), threads=32, registers=16, shared=114 * KIB).allowed[SHARED] == 1  # 2 without the reserve


def test_room_for_one_more_block_is_just_enough() -> None:
    room = room_for(h100(), blocks=2, threads=384)
    assert room is not None
    registers, shared = room
    assert occupancy(h100(), threads=384, registers=registers, shared=shared).blocks == 2
    assert occupancy(h100(), threads=384, registers=registers + 1, shared=shared).blocks == 1
    assert occupancy(h100(), threads=384, registers=registers, shared=shared + 1).blocks == 1
    assert room_for(h100(), blocks=3, threads=1024) is None


@pytest.mark.parametrize(
    ("name", "compute", "sms"),
    [
        ("NVIDIA H100 80GB HBM3", (9, 0), 132),
        ("NVIDIA H100 PCIe", (9, 0), 114),
        ("NVIDIA H200", (9, 0), 132),
        ("NVIDIA A100-SXM4-40GB", (8, 0), 108),
        ("NVIDIA A10", (8, 6), 72),
        ("NVIDIA A10G", (8, 6), None),
        ("NVIDIA L4", (8, 9), 58),
        ("NVIDIA L40S", (8, 9), 142),
        ("Tesla T4", (7, 5), 40),
        ("NVIDIA B200", (10, 0), 148),
        ("NVIDIA GeForce RTX 3080", (8, 6), 68),
        ("NVIDIA GeForce RTX 3080 Ti", (8, 6), 80),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", (8, 6), None),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", (8, 0), None),
        ("4090", (8, 9), 128),
    ],
)
def test_names(name: str, compute: tuple[int, int], sms: int | None) -> None:
    limits = limits_of(Gpu(device=0, name=name))
    assert limits is not None
    assert (limits.compute, limits.sm_count) == (compute, sms)
    assert name in limits.origin


@pytest.mark.parametrize(
    "name", ["", "AMD Instinct MI300X", "AMD Instinct MI250X", "GeForce GTX 1080", "H1000", "XA100"]
)
def test_names_that_are_not_known_are_not_guessed(name: str) -> None:
    assert limits_of(Gpu(device=0, name=name)) is None


def test_an_ambiguous_name_says_what_it_was_taken_for() -> None:
    assert "PCIe card has 114" in h100().sm_origin
    assert "PCIe" not in named_limits("NVIDIA H100 80GB HBM3").sm_origin


def test_every_name_of_the_table_finds_itself() -> None:
    for name in product_names():
        found = product(name)
        assert found is not None
        assert found.name == name
        assert found.compute in {row.compute for row in architectures()}


def test_amd_capabilities_are_not_nvidias() -> None:
    """ROCm calls an MI250X 9.0, as a Hopper is called; its wavefronts have 64 threads."""
    assert limits_of(Gpu(device=0, name="AMD Instinct MI250X", compute=(9, 0))) is None
    assert limits_of(Gpu(device=0, compute=(9, 0), limits={"threadsPerWarp": 64})) is None


def test_the_trace_is_believed_before_the_table() -> None:
    own = {"maxWarpsPerSm": 40, "maxBlocksPerSm": 20, "maxRegistersPerSm": 65536, "maxShmemPerSm": 200_000}
    gpu = Gpu(device=0, name="NVIDIA H100", compute=(9, 0), sm_count=50, limits=own, origin="TARGET_INFO_GPU")
    limits = limits_of(gpu)
    assert limits is not None
    assert (limits.warps, limits.blocks, limits.shared, limits.sm_count) == (40, 20, 200_000, 50)
    assert (limits.origin, limits.sm_origin, limits.confirmed) == ("TARGET_INFO_GPU", "TARGET_INFO_GPU", True)
    del own["maxBlocksPerSm"]
    partly = limits_of(Gpu(device=0, compute=(9, 0), limits=own, origin="deviceProperties"))
    assert partly is not None
    assert partly.blocks == 32
    assert partly.origin == "deviceProperties, the rest from the table for compute capability 9.0"


def test_a_capability_that_the_table_lacks_needs_the_traces_own_limits() -> None:
    assert limits_of(Gpu(device=0, compute=(11, 0))) is None
    own = {"maxWarpsPerSm": 48, "maxBlocksPerSm": 24, "maxRegistersPerSm": 65536, "maxShmemPerSm": 233_472}
    limits = limits_of(Gpu(device=0, compute=(11, 0), limits=own, origin="TARGET_INFO_GPU"))
    assert limits is not None
    assert (limits.block_shared, limits.reserved) == (232_448, 1024)


def test_rows_that_no_trace_confirmed_say_so() -> None:
    orin, hopper = limits_of(Gpu(device=0, compute=(8, 7))), limits_of(Gpu(device=0, compute=(9, 0)))
    assert orin is not None
    assert hopper is not None
    assert (orin.confirmed, hopper.confirmed) == (False, True)
    assert {row.compute for row in architectures() if not row.confirmed} == {(8, 7), (8, 9), (10, 3), (12, 1)}


def test_waves_and_the_tail() -> None:
    held = occupancy(h100(), threads=128, registers=255, shared=64 * KIB)  # 2 blocks an SM
    found = waves(h100(), held, blocks=244 * 6)
    assert found is not None
    assert (found.at_once, found.full, found.tail, found.idle_sms) == (264, 5, 144, 0)
    assert found.waves == pytest.approx(1464 / 264)
    assert found.tail_share == pytest.approx(144 / 264)
    assert found.efficiency == pytest.approx(1464 / 264 / 6)
    assert waves_in_words(found) == "5.55 waves of 264 blocks: 5 full, the last one 55% full"


def test_a_grid_that_fits_at_once_is_no_claim_of_persistence() -> None:
    held = occupancy(h100(), threads=384, registers=168, shared=213_196)
    full, small = waves(h100(), held, blocks=132), waves(h100(), held, blocks=98)
    assert full is not None
    assert small is not None
    assert (full.single, full.full, full.tail, full.efficiency, full.tail_share) == (True, 1, 0, 1.0, 1.0)
    assert (small.idle_sms, small.filled) == (34, pytest.approx(12 / 64 * 98 / 132))
    assert waves_in_words(small) == "all 98 blocks at once, of 132 that fit; at least 34 SMs have none"


def test_clusters_must_fit_together() -> None:
    held = occupancy(h100(), threads=640, registers=96, shared=103_808)  # 1 block an SM
    limited = waves(h100(), held, blocks=240, cluster=4, max_active_clusters=30)
    assert limited is not None
    assert (limited.at_once, limited.waves, limited.limited_by_clusters) == (120, 2.0, True)
    unlimited = waves(h100(), held, blocks=240, cluster=4, max_active_clusters=0)
    assert unlimited is not None
    assert (unlimited.at_once, unlimited.limited_by_clusters) == (132, False)


def test_no_waves_without_sms_blocks_or_room() -> None:
    held = occupancy(h100(), threads=128, registers=16, shared=0)
    unknown = limits_of(Gpu(device=0, compute=(9, 0)))
    assert unknown is not None
    assert waves(unknown, held, blocks=100) is None
    assert waves(h100(), held, blocks=0) is None
    assert waves(h100(), occupancy(h100(), threads=2000, registers=16, shared=0), blocks=10) is None
    assert waves(h100(), held, blocks=10, cluster=4096) is None


def test_the_user_fills_in_only_what_the_trace_leaves_open(tmp_path: Path) -> None:
    with Export(tmp_path / "a.sqlite") as export:
        export.kernel("saxpy", 0, 100)
    with open_trace(export.path) as trace:
        assert GpuLimits(trace).of(0, None) is None
        named = GpuLimits(trace, "A100")
        found = named.of(0, None)
        assert found is not None
        assert (found.compute, found.sm_count, named.used) == ((8, 0), 108, True)
    with Export(tmp_path / "b.sqlite") as export:
        export.gpu().kernel("saxpy", 0, 100)
    with open_trace(export.path) as trace:
        named = GpuLimits(trace, "A100")
        found = named.of(0, None)
        assert found is not None
        assert (found.compute, found.sm_count, named.used) == ((9, 0), 132, False)
        assert occupancy_of_trace(trace, gpu="A100").remarks == (
            "the GPU that you named is not used: the trace says itself which it is",
        )
    with pytest.raises(UserError, match=r"no figures for a GPU called .abacus..*H100"):
        named_limits("abacus")
