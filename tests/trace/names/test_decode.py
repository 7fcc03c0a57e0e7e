# ruff: noqa: E501 (names of kernels are as long as they are)
"""What names say; and that nothing is said that nobody knows."""

from __future__ import annotations

import pytest

from proctor.trace.names import Launch, decode
from tests.trace.names.eighty_two import FA2, FA3, REAL
from tests.trace.names.reading import fields, meaning, unknown


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
