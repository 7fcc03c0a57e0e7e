# ruff: noqa: E501 (names of kernels are as long as they are)
"""What names say, against launches of real traces; and that nothing is said that nobody knows."""

from __future__ import annotations

import pytest

from proctor.trace.names import Decoded, Launch, decode
from tests.trace.names.eighty_two import CUTLASS_2, CUTLASS_3, FA2, FA3, REAL


def fields(found: Decoded) -> dict[str, str]:
    return {field.name: field.value for field in found.fields}


def meaning(found: Decoded, name: str) -> str:
    return next(field.meaning for field in found.fields if field.name == name)


def unknown(found: Decoded) -> dict[str, str]:
    return {field.name: field.value for field in found.fields if not field.known}


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
    assert any(agrees.replace(" of ", " of ") in line for line in found.evidence), found.evidence
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


def test_flash_attention_2() -> None:
    name = f"void flash::flash_fwd_kernel<{FA2}, (bool)0, (bool)1, (bool)0, (bool)0, (bool)0, (bool)1, (bool)0, (bool)0>(flash::Flash_fwd_params)"
    found = decode(name, Launch(block=(128, 1, 1), grid=(122, 1, 6), dynamic_shared=65_536))
    assert {
        "head dimension": "128",
        "tile": "128x64",
        "warps": "4",
        "elements": "cutlass::bfloat16_t",
    }.items() <= fields(found).items()
    flags = {
        name: fields(found)[name]
        for name in ("dropout", "causal", "local", "alibi", "even MN", "even K", "softcap", "return softmax")
    }
    assert [name for name, value in flags.items() if value == "true"] == ["causal", "even K"]
    assert found.contradictions == ()
    assert any("(128 + 2 * 64) * 128 * 2 B = 65,536 B" in line for line in found.evidence)
    assert any("122 tiles of 128 queries, batch 1, 6 heads" in line for line in found.evidence)
    assert decode(name, Launch(block=(256, 1, 1), dynamic_shared=70_000)).contradictions[:2] != ()


def test_the_flags_of_pytorchs_copy_have_no_softcap() -> None:
    name = next(real.name for real in REAL if real.number == 23)
    found = decode(name, Launch(block=(128, 1, 1), grid=(2, 4, 12), dynamic_shared=49_152))
    assert "softcap" not in fields(found)
    assert fields(found)["even K"] == "true"
    assert found.contradictions == ()
    fork = decode(f"void flash::flash_fwd_kernel<{FA2}, (bool)1, (bool)0, (bool)1>(X)")
    assert unknown(fork)["flags"] == "true, false, true"


def test_splits_of_flash_attention_2() -> None:
    split = next(real.name for real in REAL if real.number == 24)
    assert fields(decode(split))["split"] == "true"
    combine = decode(next(real.name for real in REAL if real.number == 25))
    assert meaning(combine, "splits") == "5 to 8 splits"
    backward = decode(next(real.name for real in REAL if real.number == 26))
    assert fields(backward)["causal"] == "true"
    assert "backward" in backward.summary


def test_flash_attention_3_and_4() -> None:
    three = decode(FA3, Launch(cluster=(0, 0, 0)))
    assert {"stages": "2", "tile": "128x176", "head dimension": "128", "head dimension of V": "128"}.items() <= fields(
        three
    ).items()
    assert [f.name for f in three.fields if f.value == "true"] == [
        "causal",
        "varlen",
        "PV from registers",
        "overlap within a warp group",
    ]
    assert three.family == "FlashAttention 3"
    assert three.contradictions == ()
    longer = decode(
        FA3.replace(
            "(bool)0, (bool)0>, flash::CollectiveEpilogueFwd",
            "(bool)0, (bool)0, cutlass::bfloat16_t, (int)1>, flash::CollectiveEpilogueFwd",
        )
    )
    assert unknown(longer)["further arguments"] == "cutlass::bfloat16_t, 1"
    four = decode(next(real.name for real in REAL if real.number == 28))
    assert {"architecture": "sm100", "class": "FlashAttentionForwardSm100", "elements": "bf16"}.items() <= fields(
        four
    ).items()
    assert "arguments" in unknown(four)


@pytest.mark.parametrize(
    ("name", "kind", "operations"),
    [
        (
            "triton_poi_fused__scaled_dot_product_flash_attention_cat_3",
            "poi",
            ["_scaled_dot_product_flash_attention", "cat"],
        ),
        (
            "triton_per_fused__to_copy_add_mean_mul_pow_rsqrt_12",
            "per",
            ["_to_copy", "add", "mean", "mul", "pow", "rsqrt"],
        ),
        ("triton_red_fused_native_layer_norm_2", "red", ["native_layer_norm"]),
        ("triton_tem_fused_mm_0", "tem", ["mm"]),
        ("triton_poi_fused_add_my_op_7", "poi", ["add", "my", "op"]),
        ("triton_poi_fused_0", "poi", []),
    ],
)
def test_inductor(name: str, kind: str, operations: list[str]) -> None:
    found = decode(name)
    assert fields(found)["kind"] == kind
    assert fields(found).get("operations", "") == ", ".join(operations)
    assert found.family == "Inductor"


def test_old_triton_names_say_little() -> None:
    found = decode("triton__0d1d2d3d")
    assert found.summary == "old torch.compile kernel; it does not say what it computes"
    assert meaning(found, "arguments").endswith("0, 1, 2, 3")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(X)", {"collective": "AllReduce", "operation": "Sum", "type": "bf16", "algorithm": "RING", "protocol": "LL"}),
        ("ncclDevKernel_AllReduce_Sum_bf16_NVLS(X)", {"collective": "AllReduce", "operation": "Sum", "type": "bf16", "algorithm": "NVLS"}),
        ("ncclDevKernel_ReduceScatter_Sum_f32_NVLS_TREE_SIMPLE", {"collective": "ReduceScatter", "operation": "Sum", "type": "f32", "algorithm": "NVLS_TREE", "protocol": "SIMPLE"}),
        ("ncclDevKernel_AllReduce_MinMax_u32_COLLNET_CHAIN_SIMPLE", {"collective": "AllReduce", "operation": "MinMax", "type": "u32", "algorithm": "COLLNET_CHAIN", "protocol": "SIMPLE"}),
        ("ncclKernel_AllReduce_RING_LL128_Sum_half(ncclDevComm*, unsigned long, ncclWork*)", {"collective": "AllReduce", "algorithm": "RING", "protocol": "LL128", "operation": "Sum", "type": "half"}),
        ("ncclDevKernel_AllGather_RING_LL(X)", {"collective": "AllGather", "algorithm": "RING", "protocol": "LL"}),
        ("ncclDevKernel_SendRecv(X)", {"collective": "SendRecv"}),
    ],
)  # fmt: skip
def test_nccl(name: str, expected: dict[str, str]) -> None:
    found = decode(name)
    assert fields(found) == expected
    assert any("name is that of the kernel entered" in line for line in found.evidence) == (
        expected.get("protocol") == "LL"
    )


def test_pytorch() -> None:
    fill = decode(
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>, std::array<char *, (unsigned long)1>>(int, T2, T3)"
    )
    assert fields(fill)["functor"] == "FillFunctor<float>"
    assert meaning(fill, "functor") == "writes one value everywhere; no arithmetic"
    assert fields(fill)["vector"] == "4"
    strided = decode(
        next(real.name for real in REAL if real.name.startswith("void at::native::elementwise_kernel<")),
        Launch(block=(128, 1, 1)),
    )
    assert {
        "threads": "128",
        "elements a thread": "2",
        "functor": "BinaryFunctor<float, float, float, MulFunctor<float>>",
    }.items() <= fields(strided).items()
    assert strided.evidence == ("the first argument: 128 threads a block; the launch has 128",)
    reduce = decode(next(real.name for real in REAL if real.number == 60), Launch(block=(32, 4, 1)))
    assert {
        "most threads": "512",
        "operation": "MeanOps<float, float, float, float>",
        "operands": "float",
    }.items() <= fields(reduce).items()
    assert decode(reduce.name, Launch(block=(1024, 1, 1))).contradictions
    softmax = decode("void <unnamed>::softmax_warp_forward<float, float, float, (int)6, (bool)0, (bool)0>(T2 *)")
    assert meaning(softmax, "log2 of a row") == "rows of up to 64 elements"
    odd = decode("void at::native::(anonymous namespace)::some_new_kernel<float, 3>(X)")
    assert unknown(odd) == {"template arguments": "float, 3"}


def test_serving_engines() -> None:
    cache = decode(next(real.name for real in REAL if real.number == 34))
    assert meaning(cache, "function") == "writes keys and values into the cache: no attention"
    assert meaning(cache, "cache type") == "as the model"
    norm = decode("void flashinfer::norm::FusedAddRMSNormKernel<(unsigned int)8, __half>(T2 *)")
    assert {"vector": "8", "elements": "__half"}.items() <= fields(norm).items()
    prefill = decode(next(real.name for real in REAL if real.number == 37))
    assert "template arguments" in unknown(prefill)
    assert decode("merge_attn_states_kernel").summary.endswith("attention was split")


def test_tensorrt_llm() -> None:
    found = decode("fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext")
    assert fields(found) == {
        "architecture": "sm100a", "Q, K and V": "QkvE4m3", "result": "OBfloat16", "head dimension": "H64", "layout": "PagedKv",
        "mask": "Causal", "page": "P16", "sequences": "VarSeq", "tile of queries": "Q128", "tile of keys": "Kv128",
        "scheduler": "Persistent", "phase": "Context",
    }  # fmt: skip
    mla = decode("fmhaSm100aKernel_QkvE4m3OBfloat16HQk576HV512PagedKvDenseP32VarSeqQ16Kv128StaticSwapsAbForGen")
    assert meaning(mla, "phase") == "decode"
    assert unknown(mla) == {"word": "SwapsAb"}
    gemm = decode(next(real.name for real in REAL if real.number == 47))
    assert {"tile": "t128x16x256", "stages": "s3", "cluster": "cga1x1x1", "result": "MxE4m3"}.items() <= fields(
        gemm
    ).items()


def test_tensile() -> None:
    found = decode("Cijk_Alik_Bljk_BBS_BH_MT128x160x64_MI16x16x16x1_SN_GSU4_WG32_8_1_WGM6", Launch(block=(256, 1, 1)))
    assert {
        "macro tile": "MT128x160x64",
        "GSU": "GSU4",
        "work-group": "WG32_8_1",
        "other options": "BH_SN",
    }.items() <= fields(found).items()
    assert meaning(found, "A") == "transposed"
    assert meaning(found, "types") == "operands bf16, result bf16, arithmetic fp32"
    assert found.summary == "AMD Tensile GEMM, tile 128x160x64, sum split in 4"
    assert found.evidence == ("WG: 256 threads a block; the launch has 256",)
    assert meaning(decode("Cijk_Ailk_Bjlk_HHS_BH_MT64x16x64"), "B") == "transposed"


@pytest.mark.parametrize(
    "name",
    ["cublasLt::splitKreduce_kernel<32, 16, int>", "gemv2T_kernel_val<int, float>", "internal::gemvx::kernel<int>"],
)
def test_template_arguments_of_cublas_are_shown_and_not_explained(name: str) -> None:
    found = decode(name)
    assert "template arguments" in unknown(found)
    assert found.family == "cuBLAS"


def test_a_name_without_a_grammar_shows_what_the_lineup_says() -> None:
    assert decode("mine").family == ""
    assert decode("mine").category == "other"
    found = decode("void cub::DeviceScanKernel<X, float*>(X)")
    assert (found.family, found.fields, found.category, found.rule) == ("", (), "scan", "cub-scan")


def test_every_field_says_something() -> None:
    for real in REAL:
        for field in decode(real.name, Launch(block=(128, 1, 1), dynamic_shared=65_536, cluster=(1, 1, 1))).fields:
            assert field.name
            assert field.value
            assert field.meaning
            assert field.known or field.meaning == "unknown"
