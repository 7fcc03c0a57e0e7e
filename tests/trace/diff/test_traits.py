"""What rules ask of names: library, tile, type of operands."""

from __future__ import annotations

import pytest

from proctor.trace.diff.traits import Traits, traits


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", Traits("cuBLAS", "192x192 64x4", "bf16")),
        ("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTT", Traits("cuBLAS", "256x128 64x4", "fp16")),
        (
            "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4"
            "_execute_kernel__5x_cublas",
            Traits("cuBLAS", "tilesize64x256x8", "fp32"),
        ),
        (
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1"
            "_execute_segment_k_off_kernel__5x_cublas",
            Traits("cuBLAS", "tilesize128x128x64", "mixed"),
        ),
        ("ampere_sgemm_128x64_nn", Traits("cuBLAS", "128x64", "fp32")),
        ("ampere_fp16_s16816gemm_fp16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn", Traits("cuBLAS", "64x64", "fp16")),
        (
            "cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>",
            Traits("cuBLAS", "64x64 64x6", "bf16"),
        ),
        ("matmul_kernel_persistent", Traits("Triton", "", "")),
        ("triton_tem_fused_mm_0", Traits("Triton", "", "")),
        ("flash::flash_fwd_kernel<x>", Traits("FlashAttention", "", "")),
        ("something_else", Traits("", "", "")),
    ],
)
def test_traits(name: str, expected: Traits) -> None:
    assert traits(name) == expected
