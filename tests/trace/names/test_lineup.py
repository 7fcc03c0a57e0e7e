# ruff: noqa: E501 (names of kernels are as long as they are)
"""What kind of work a kernel does, and which rule says so."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from proctor.rows import UserError
from proctor.trace import open_trace
from proctor.trace.names import OTHER, line_up, normalise
from proctor.trace.names.listing import kinds_of
from tests.trace.exports import Export
from tests.trace.names.eighty_two import REAL, Real

SQLITE = [
    "nsys/nsys-ai/mfu_2gpu_before.sqlite",
    "nsys/nsys-ai/mfu_2gpu_after.sqlite",
    "nsys/nsys-ai/h100_2gpu_1s.sqlite",
    "nsys/nsys-ai/mock.sqlite",
]
KINETO = ["kineto/h100_vit_falconsai_nsfw.json.gz", "kineto/h100_bert_small.json.gz"]


def test_all_eighty_two_are_here() -> None:
    assert {real.number for real in REAL} == set(range(1, 83))


@pytest.mark.parametrize("real", REAL, ids=lambda real: f"{real.number}-{normalise(real.name)[:40]}")
def test_eighty_two_real_names(real: Real) -> None:
    placed = line_up().place(real.name)
    assert placed.category == real.category
    rule = line_up().rule(placed.rule)
    assert rule is not None
    assert rule.category == real.category
    assert rule.why


@pytest.mark.parametrize("file", [*SQLITE, *KINETO])
def test_nearly_all_time_of_every_sample_is_placed(samples: Path, file: str) -> None:
    with open_trace(samples / file) as trace:
        kinds = kinds_of(trace)
    assert kinds.placed >= 0.95
    assert sum(line.total for line in kinds.lines) == kinds.total
    assert sum(line.share for line in kinds.lines) == pytest.approx(1)
    assert all(rule.why and rule.kernels for line in kinds.lines for rule in line.rules)


def test_a_real_trace_by_independent_sql(samples: Path) -> None:
    file = samples / SQLITE[0]
    with open_trace(file) as trace:
        lines = {line.category: line for line in kinds_of(trace).lines}
    connection = sqlite3.connect(f"{file.as_uri()}?mode=ro&immutable=1", uri=True)

    def like(*patterns: str) -> tuple[int, int]:
        where = " OR ".join("s.value LIKE ?" for _ in patterns)
        sql = (
            'SELECT count(*), sum(k."end" - k.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k '
            f"JOIN StringIds s ON s.id = k.demangledName WHERE {where}"
        )
        return connection.execute(sql, patterns).fetchone()  # type: ignore[no-any-return]

    assert (lines["attention"].launches, lines["attention"].total) == like("%flash_fwd_kernel%")
    assert (lines["gemm"].launches, lines["gemm"].total) == like("nvjet%")
    assert (lines["communication"].launches, lines["communication"].total) == like("nccl%")
    assert (lines["norm"].launches, lines["norm"].total) == like("%layer_norm%")
    assert (lines["copy"].launches, lines["copy"].total) == like("%copy_kernel_cuda%", "%CatArray%")
    connection.close()


@pytest.mark.parametrize(
    ("name", "category", "rule"),
    [
        # names that contain the names of other work
        ("triton_poi_fused__scaled_dot_product_flash_attention_cat_3", "fused", "inductor-pointwise"),
        ("triton_red_fused__softmax_native_layer_norm_4", "fused", "inductor-reduction"),
        ("triton_tem_fused_flex_attention_0", "attention", "inductor-attention"),
        ("reshape_and_cache_kernel_flash", "KV cache", "kv-cache-write"),
        ("create_flashinfer_kv_indices_triton", "attention metadata", "kv-indices"),
        ("void vllm::rms_norm_dynamic_per_token_quant_kernel<c10::Half>(X)", "norm", "vllm-rms-norm"),
        ("sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32", "convolution", "xmma-convolution"),
        # one short name, many kinds of work
        ("void cutlass::device_kernel<flash::FlashAttnFwdCombine<cute::tuple<cute::C<8>>>>(X)", "attention merge", "flash-attention-3-combine"),
        ("void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnBwdSm90<X>>>(X)", "attention", "flash-attention-3-backward"),
        ("void cutlass::device_kernel<mine::Thing<int>>(X)", OTHER, ""),
        ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align8>(X)", "convolution", "cutlass-convolution"),
        # random numbers are no norm
        ("void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4, at::native::normal_kernel>(X)", "random", "torch-random"),
        # fills, copies and activations among the elementwise
        ("void at::native::unrolled_elementwise_kernel<at::native::FillFunctor<int>, std::array<char*, 1ul> >(X)", "fill", "torch-fill"),
        ("void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}>(at::TensorIteratorBase&, X const&)::{lambda(int)#1}>(int)", "activation", "torch-activation"),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::TensorListMetadata<4>, at::native::FusedAdamMathFunctor<float, 4> >(X)", "optimizer", "multi-tensor-apply"),
        ("void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(X)", "loss", "cross-entropy"),
        ("void at::native::(anonymous namespace)::upsample_bicubic2d_out_frame<float>(X)", "resampling", "resampling"),
        ("nvjet_sm120_hsh_mma_96x256x64_2_48x64x64_tmaAB_alignCD4_bz_TNNN", "gemm", "nvjet"),
        ("_fused_recurrent_gated_delta_rule_packed_decode_kernel", "state space", "state-space"),
        ("kernel_cutlass_kernel_flashinfernormkernelsfused_add_rmsnormFusedAddRMSNormKernel_object_at__tensorptrbf16gmem_0", "norm", "norm-by-name"),
        ("void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u>(X)", "sampling", "flashinfer-sampling"),
        ("moe_align_block_size_kernel", "moe", "moe-by-name"),
        ("fused_moe_kernel", "gemm", "triton-moe-gemm"),
        ("void cub::DeviceReduceKernel<X, float*>(X)", "reduction", "cub-reduce"),
        ("saxpy(int, float, float *, float *)", OTHER, ""),
        ("", OTHER, ""),
    ],
)  # fmt: skip
def test_names_that_mislead(name: str, category: str, rule: str) -> None:
    assert line_up().place(name) == (category, rule)


def test_every_category_of_a_rule_is_described_and_every_rule_says_why() -> None:
    built_in = line_up()
    assert {rule.category for rule in built_in.rules} <= set(built_in.categories)
    assert all(len(rule.why) > 3 for rule in built_in.rules)
    assert OTHER in built_in.categories


MINE = """
[categories]
"ours" = "our own kernels"

[[rule]]
id = "ours"
category = "ours"
pattern = 'nvjet_tst_96x64_\\w+'
why = "a kernel that we look at apart"
"""


def test_rules_of_the_user_come_first(tmp_path: Path) -> None:
    (file := tmp_path / "rules.toml").write_text(MINE)
    used = line_up(file)
    assert used.place("nvjet_tst_96x64_64x10_1x2_h_bz_bias_TNN") == ("ours", "ours")
    assert used.place("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN") == ("gemm", "nvjet")
    assert used.categories["ours"] == "our own kernels"
    assert line_up().place("nvjet_tst_96x64_64x10_1x2_h_bz_bias_TNN") == ("gemm", "nvjet")
    rule = used.rule("ours")
    assert rule is not None
    assert rule.origin == str(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rule = [", "rules.toml: no valid TOML"),
        ("", "no [[rule]] in the file"),
        ("[rules]", "unknown table 'rules'"),
        ("rule = [3]", "rules.toml, rule 1: rule: must be a [[rule]] table"),
        (MINE.replace("pattern", "patern"), "rules.toml, rule 1 (ours): patern: unknown field"),
        (MINE.replace('why = "a kernel that we look at apart"', ""), "rules.toml, rule 1 (ours): why: must be a text"),
        (MINE.replace("'nvjet_tst_96x64_\\w+'", "'nvjet_('"), "rules.toml, rule 1 (ours): pattern: no regular expression"),
        (MINE.replace("'nvjet_tst_96x64_\\w+'", "7"), "rules.toml, rule 1 (ours): pattern: must be a text"),
        (MINE.replace('id = "ours"', 'id = "nvjet"'), "rules.toml, rule 1 (nvjet): id: another rule has this id"),
        (MINE + MINE[MINE.index("[[rule]]") :], "rules.toml, rule 2 (ours): id: another rule has this id"),
        (MINE.replace('"our own kernels"', "3"), "[categories] must give each category a text"),
        (MINE.replace('why', 'inside = 3\nwhy', 1), "rules.toml, rule 1 (ours): inside: must be a text"),
    ],
)  # fmt: skip
def test_a_bad_rule_is_named_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    (file := tmp_path / "rules.toml").write_text(text)
    with pytest.raises(UserError) as raised:
        line_up(file)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert str(file) in str(raised.value)


def test_rules_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        line_up(tmp_path / "none.toml")


def test_kinds_of_a_small_trace(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite")
    export.kernel("nvjet_tst_64x8_64x16_4x2_h_bz_TNT", 0, 60).kernel("nvjet_tst_64x8_64x16_4x2_h_bz_TNN", 60, 80)
    export.kernel("mine", 100, 120).kernel("reshape_and_cache_kernel_flash", 120, 120)
    with open_trace(export.close()) as trace:
        kinds = kinds_of(trace)
    assert [(line.category, line.total, line.share, line.launches) for line in kinds.lines] == [
        ("gemm", 80, 0.8, 2),
        ("other", 20, 0.2, 1),
        ("KV cache", 0, 0.0, 1),
    ]
    assert (kinds.total, kinds.launches, kinds.placed) == (100, 4, 0.8)
    (rule,) = kinds.lines[0].rules
    assert rule.kernels == ("nvjet_tst_64x8_64x16_4x2_h_bz_TNT", "nvjet_tst_64x8_64x16_4x2_h_bz_TNN")


def test_a_trace_without_kernels_says_so(tmp_path: Path) -> None:
    with open_trace(Export(tmp_path / "t.sqlite").call("cudaFree", 0, 9).close()) as trace, pytest.raises(UserError):
        kinds_of(trace)
