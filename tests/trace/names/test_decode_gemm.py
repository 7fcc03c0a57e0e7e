# ruff: noqa: E501 (names of kernels are as long as they are)
"""What names of matrix products say, against launches of real traces."""

from __future__ import annotations

import pytest

from proctor.trace.names import Launch, decode
from tests.trace.names.eighty_two import CUTLASS_2, CUTLASS_3, REAL
from tests.trace.names.reading import fields, meaning, unknown

NVJET = [  # name, threads, grid, bytes of dynamic shared memory, of A and B, the rest, cluster in the trace
    ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", 384, (2, 66), 213_196, 196_608, 16_588, (2, 1, 1)),
    ("nvjet_tst_192x208_64x4_1x1_h_bz_coopB_bias_TNT", 384, (1, 132), 221_388, 204_800, 16_588, (0, 0, 0)),
    ("nvjet_tst_96x64_64x10_1x2_h_bz_bias_TNN", 384, (2, 64), 221_500, 204_800, 16_700, (2, 1, 1)),
    ("nvjet_tst_144x128_64x6_2x1_v_bz_bias_TNN", 256, (140, 1), 217_680, 208_896, 8_784, None),
    ("nvjet_tst_192x8_64x8_4x1_v_bz_TNT", 256, (132, 1), 221_512, 204_800, 16_712, None),
    ("nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT", 256, (140, 1), 213_656, 196_608, 17_048, None),
    ("nvjet_tst_64x16_64x16_2x4_2cta_h_bz_bias_TNT", 256, (112, 1), 164_504, 147_456, 17_048, None),
]


@pytest.mark.parametrize(("name", "threads", "grid", "shared", "tiles", "rest", "cluster"), NVJET)
def test_nvjet_by_the_launches_of_real_traces(
    name: str,
    threads: int,
    grid: tuple[int, int],
    shared: int,
    tiles: int,
    rest: int,
    cluster: tuple[int, int, int] | None,
) -> None:
    launch = Launch(block=(threads, 1, 1), grid=(*grid, 1), dynamic_shared=shared, static_shared=0, cluster=cluster)
    found = decode(name, launch)
    assert found.family == "nvjet"
    assert found.contradictions == ()
    assert f"= {tiles:,} B" in found.evidence[0]
    assert f"of {shared:,} B of shared memory; {rest:,} B are left" in found.evidence[0]
    assert ("N halved by 2cta" in found.evidence[0]) == ("2cta" in name)
    assert len(found.evidence) == (1 if cluster is None else 2)
    assert {"bz", "third letter"} <= set(unknown(found))
    assert all(field.meaning == "unknown" for field in found.fields if not field.known)


def test_every_field_of_an_nvjet_name() -> None:
    found = decode("nvjet_sm90_tst_64x8_64x16_4x2_h_bz_coopA_splitK_bias_TNT")
    assert fields(found) == {
        "library": "nvjet", "architecture": "sm90", "types": "tst", "tile": "64x8", "K and stages": "64x16",
        "cluster": "4x2", "orientation": "h", "bz": "bz", "coopA": "coopA", "splitK": "splitK", "bias": "bias",
        "transposes": "TN", "third letter": "T",
    }  # fmt: skip
    assert unknown(found) == {"bz": "bz", "coopA": "coopA", "third letter": "T"}
    assert meaning(found, "types") == "operands bf16, accumulation fp32, result bf16"
    assert meaning(decode("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTT"), "types").startswith(
        "operands fp16, accumulation fp32"
    )
    assert (
        meaning(decode("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTT"), "transposes") == "A not transposed, B transposed"
    )
    assert unknown(decode("nvjet_qss_256x128_64x4_1x2_h_bz_TNT"))["types"] == "qss"
    assert (found.category, found.rule) == ("gemm", "nvjet-split-k")


def test_h_swaps_the_axes_of_the_cluster() -> None:
    name = "nvjet_tst_96x64_64x10_1x2_h_bz_bias_TNN"
    assert decode(name, Launch(cluster=(2, 1, 1))).contradictions == ()
    assert len(decode(name, Launch(cluster=(1, 2, 1))).contradictions) == 1
    assert len(decode(name.replace("_h_", "_v_"), Launch(cluster=(2, 1, 1))).contradictions) == 1


def test_a_launch_that_contradicts_the_name() -> None:
    name = "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN"
    found = decode(name, Launch(dynamic_shared=100_000, cluster=(4, 1, 1)))
    assert found.evidence == ()
    assert found.contradictions == (
        "tiles of A and B take (192 + 192) * 64 * 4 * 2 B = 196,608 B, but a block of the launch has 100,000 B",
        "the launch's cluster is 4 x 1; the name says 2 x 1",
    )


def test_nvjet_of_consumer_blackwell_says_only_what_arithmetic_confirms() -> None:
    name = "nvjet_sm120_hsh_mma_96x256x64_2_48x64x64_tmaAB_alignCD4_bz_TNNN"
    assert "numbers" in unknown(decode(name))
    found = decode(name, Launch(dynamic_shared=91_136))
    assert fields(found)["tile"] == "96x256x64"
    assert "(96 + 256) * 64 * 2 * 2 B = 90,112 B" in found.evidence[0]
    assert "48x64x64" in unknown(found)
    assert decode(name, Launch(dynamic_shared=1_000)).contradictions == ()


@pytest.mark.parametrize(
    ("name", "block", "shared", "agrees"),
    [
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas", 128, 33_280, "30,720 B of 33,280 B"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas", 64, 6_912, "6,144 B of 6,912 B"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>(X)", 128, 98_304, "98,304 B of 98,304 B of shared memory; 0 B are left"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2>(X)", 256, 147_456, "147,456 B of 147,456 B"),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8>(X)", 128, 33_792, "32,768 B of 33,792 B"),
        ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align8>(X)", 128, 81_920, "81,920 B of 81,920 B"),
        ("ampere_fp16_s16816gemm_fp16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn", 128, 81_920, "81,920 B of 81,920 B"),
    ],
)  # fmt: skip
def test_gemms_by_the_launches_of_real_traces(name: str, block: int, shared: int, agrees: str) -> None:
    found = decode(name, Launch(block=(block, 1, 1), dynamic_shared=shared))
    assert found.contradictions == ()
    assert any(agrees in line for line in found.evidence), found.evidence
    assert decode(name, Launch(dynamic_shared=shared // 2)).contradictions


def test_cutlass_names() -> None:
    found = decode("void cutlass::Kernel<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(T1::Params)")
    assert fields(found) == {
        "wrapper": "cutlass::Kernel", "architecture": "80", "class": "simt", "accumulation": "s", "operation": "gemm",
        "tile": "128x32", "K and stages": "8x5", "layouts": "nn", "alignment": "align1",
    }  # fmt: skip
    assert unknown(decode(REAL[17].name))  # relu: whether it is applied has no public definition
    assert decode("cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8").family == "CUTLASS 2"


def test_cutlass_templates() -> None:
    two = decode(CUTLASS_2)
    assert (two.family, fields(two)["tile"], fields(two)["main loop"]) == ("CUTLASS 2", "128x128x8", "MmaPipelined")
    assert fields(two)["split along K, serial"] == "false"
    three = decode(CUTLASS_3, Launch(dynamic_shared=180_224, cluster=(2, 1, 1)))
    assert three.family == "CUTLASS 3"
    assert {"tile": "128x64x64", "stages": "7", "cluster": "2x1x1", "A": "cutlass::bfloat16_t"}.items() <= fields(
        three
    ).items()
    assert meaning(three, "schedule") == "how warps share copying and multiplying"
    assert "(128 + 64) * 64 * 7 * 2 B = 172,032 B of 180,224 B" in three.evidence[1]
    assert "2 x 1; the name says 2 x 1" in three.evidence[0]
    streamed = decode(CUTLASS_3.replace("PersistentScheduler", "StreamKScheduler"))
    assert meaning(streamed, "scheduler").endswith("whether in a fixed order is not said")


def test_xmma_and_generations() -> None:
    found = decode(
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_split_k_kernel__5x_cublas",
        Launch(block=(128, 1, 1)),
    )
    assert {
        "tile": "tilesize64x256x8",
        "stages": "stage3",
        "warps": "warpsize1x4x1",
        "split": "split_k",
    }.items() <= fields(found).items()
    assert found.evidence == ("warpsize1x4x1 = 4 warps, 128 threads; the launch has 128 threads a block",)
    assert decode(found.name, Launch(block=(256, 1, 1))).contradictions
    mixed = decode(
        "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x64x128_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas"
    )
    assert {"types", "warpgroupsize1x1x1", "segment_k_off"} <= set(unknown(mixed))
    volta = decode("volta_scudnn_128x32_relu_interior_nn_v1")
    assert (volta.family, fields(volta)["tile"], fields(volta)["layouts"]) == ("cuDNN", "128x32", "nn")
    assert {"relu", "interior", "v1"} <= set(unknown(volta))
    assert (
        meaning(decode("volta_h884gemm_64x128_ldg8_nn"), "instruction")
        == "tensor cores, instruction 8 x 8 x 4 (M x N x K)"
    )
    assert fields(decode("volta_sgemm_128x32_sliced1x4_tn"))["sliced"] == "sliced1x4"
