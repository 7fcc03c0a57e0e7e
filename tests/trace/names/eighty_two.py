# ruff: noqa: E501 (names of kernels are as long as they are)
"""Eighty-two kernels as they stand in real traces, issues and reports, each with its category and its two answers.

Where a report shortens a name by dots, the rest is as the kernel's source spells it. ``rtr`` and ``bi`` are:
y(es), n(o), c (depends), ? (not known), - (integers: the question does not apply).
"""

from __future__ import annotations

from typing import NamedTuple

FA2 = (
    "Flash_fwd_kernel_traits<(int)128, (int)128, (int)64, (int)4, (bool)0, (bool)0, cutlass::bfloat16_t, "
    "Flash_kernel_traits<(int)128, (int)128, (int)64, (int)4, cutlass::bfloat16_t>>"
)
FA2_BACKWARD = (
    "Flash_bwd_kernel_traits<(int)128, (int)64, (int)128, (int)8, (int)4, (int)2, (int)2, (bool)0, (bool)0, "
    "cutlass::bfloat16_t, Flash_kernel_traits<(int)128, (int)64, (int)128, (int)8, cutlass::bfloat16_t>>"
)
ONE = "cute::tuple<cute::C<(int)1>, cute::C<(int)1>, cute::C<(int)1>>"
FA3 = (
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<"
    f"(int)2, {ONE}, cute::tuple<cute::C<(int)128>, cute::C<(int)176>, cute::C<(int)128>>, (int)128, "
    "cutlass::bfloat16_t, float, cutlass::arch::Sm90, (bool)1, (bool)0, (bool)0, (bool)1, (bool)0, (bool)0, (bool)0, "
    "(bool)1, (bool)1, (bool)0, (bool)0, (bool)0>, flash::CollectiveEpilogueFwd<cute::tuple<cute::C<(int)128>, "
    f"cute::C<(int)128>, cute::C<(int)176>>, {ONE}, cutlass::bfloat16_t, cutlass::arch::Sm90, (int)256, (bool)1, "
    "(bool)0, (bool)0, (bool)0>, flash::VarlenDynamicPersistentTileScheduler<(int)128, (int)256, (int)128, (bool)0, "
    "(bool)0, (bool)1>>>>(T1::Params)"
)
CUTLASS_2 = (
    "void cutlass::Kernel<cutlass::gemm::kernel::Gemm<cutlass::gemm::threadblock::MmaPipelined<"
    "cutlass::gemm::GemmShape<(int)128, (int)128, (int)8>, cutlass::transform::X<float>>, "
    "cutlass::epilogue::threadblock::Epilogue<float>, cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<"
    "(int)1>, (bool)0>>(T1::Params)"
)
CUTLASS_3 = (
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, "
    "cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<7, "
    "cute::tuple<cute::C<2>, cute::C<1>, cute::C<1> >, cutlass::gemm::KernelTmaWarpSpecializedPingpong>, "
    "cute::tuple<cute::C<128>, cute::C<64>, cute::C<64> >, cutlass::bfloat16_t, cute::tuple<long, cute::C<1>, long>, "
    "cutlass::bfloat16_t, cute::tuple<long, cute::C<1>, long>, cute::TiledMMA<cute::MMA_Atom<"
    "cute::SM90::GMMA::MMA_64x64x16_F32BF16BF16_SS> >, cute::SM90_TMA_LOAD>, "
    "cutlass::epilogue::collective::CollectiveEpilogue<float>, cutlass::gemm::PersistentScheduler> >("
    "cutlass::gemm::kernel::GemmUniversal<int>::Params)"
)


class Real(NamedTuple):
    number: int
    name: str
    category: str
    rtr: str
    bi: str


REAL = [
    Real(1, "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", "gemm", "y", "n"),
    Real(2, "nvjet_tst_192x208_64x4_1x1_h_bz_coopB_bias_TNT", "gemm", "y", "n"),
    Real(3, "nvjet_tst_96x64_64x10_1x2_h_bz_bias_TNN", "gemm", "y", "n"),
    Real(4, "nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT", "gemm", "y", "n"),
    Real(5, "nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTT", "gemm", "y", "n"),
    Real(6, "nvjet_sm90_tst_64x8_64x16_4x2_h_bz_bias_TNT", "gemm", "y", "n"),
    Real(7, "nvjet_sm90_tst_64x8_64x16_2x1_v_bz_splitK_TNT", "gemm", "y", "n"),
    Real(
        8,
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel"
        "__5x_cublas",
        "gemm", "y", "n",
    ),
    Real(
        9,
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_"
        "kernel__5x_cublas",
        "gemm", "y", "n",
    ),
    Real(
        10,
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_"
        "split_k_kernel__5x_cublas",
        "gemm", "y", "n",
    ),
    Real(
        11,
        "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize32x32x64_stage6_warpsize2x2x1_tensor16x8x16_execute_kernel"
        "__5x_cublas",
        "gemm", "y", "n",
    ),
    Real(
        12,
        "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x64x128_warpgroupsize1x1x1_bias_f16_execute_segment_k_off_"
        "kernel__5x_cublas",
        "gemm", "y", "n",
    ),
    Real(13, "ampere_fp16_s16816gemm_fp16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn", "gemm", "y", "n"),
    Real(14, "ampere_sgemm_128x64_nn", "gemm", "y", "n"),
    Real(14, "volta_sgemm_128x32_sliced1x4_tn", "gemm", "y", "n"),
    Real(15, "volta_scudnn_128x32_relu_interior_nn_v1", "convolution", "y", "n"),
    Real(16, "cudnn_train_volta_scudnn_128x64_stridedB_splitK_xregs_large_nn_v1", "convolution", "c", "n"),
    Real(
        17,
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>("
        "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8::Params)",
        "gemm", "y", "n",
    ),
    Real(18, "void cutlass::Kernel<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(T1::Params)", "gemm", "y", "n"),
    Real(19, CUTLASS_2, "gemm", "y", "?"),
    Real(20, FA3, "attention", "y", "c"),
    Real(21, CUTLASS_3, "gemm", "c", "n"),
    Real(
        22,
        f"void flash::flash_fwd_kernel<{FA2}, (bool)0, (bool)0, (bool)0, (bool)0, (bool)0, (bool)1, (bool)0, (bool)0>("
        "flash::Flash_fwd_params)",
        "attention", "y", "c",
    ),
    Real(
        23,
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, "
        "cutlass::bfloat16_t, pytorch_flash::Flash_kernel_traits<64, 128, 128, 4, cutlass::bfloat16_t> >, false, "
        "false, false, false, false, true, false>(pytorch_flash::Flash_fwd_params)",
        "attention", "y", "y",
    ),
    Real(
        24,
        f"void flash::flash_fwd_splitkv_kernel<{FA2}, (bool)1, (bool)0, (bool)0, (bool)0, (bool)1, (bool)0, (bool)1, "
        "(bool)0>(flash::Flash_fwd_params)",
        "attention", "y", "n",
    ),
    Real(
        25,
        f"void flash::flash_fwd_splitkv_combine_kernel<{FA2}, (int)4, (int)3, (bool)1>(flash::Flash_fwd_params)",
        "attention merge", "y", "n",
    ),
    Real(
        26,
        f"void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<{FA2_BACKWARD}, (bool)0, (bool)1, (bool)0, (bool)0, "
        "(bool)0, (bool)1, (bool)0>(flash::Flash_bwd_params)",
        "attention", "n", "n",
    ),
    Real(27, "flash::prepare_varlen_num_blocks_kernel(int, int, int, const int *, bool)", "attention metadata", "y", "-"),
    Real(
        28,
        "kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100_object_at__tensorptrbf16gmem"
        "align16oi64div81i64div8_None_0",
        "attention", "y", "?",
    ),
    Real(
        29,
        "void vllm::merge_attn_states_kernel<__nv_bfloat16, unsigned int, (unsigned int)128>(T1 *, float *, const T1 *)",
        "attention merge", "y", "n",
    ),
    Real(29, "merge_attn_states_kernel", "attention merge", "y", "n"),
    Real(30, "kernel_unified_attention_2d", "attention", "y", "c"),
    Real(31, "kernel_unified_attention_3d", "attention", "y", "n"),
    Real(32, "reduce_segments", "attention merge", "y", "n"),
    Real(33, "reshape_and_cache_kernel_flash", "KV cache", "y", "y"),
    Real(
        34,
        "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0>("
        "const T1 *, const T1 *, T2 *, T2 *, const long *, long, long, long, long, long, int, int, int, const float *)",
        "KV cache", "y", "y",
    ),
    Real(
        35,
        "void paged_attention_ll4mi_QKV_mfma16_kernel<__hip_bfloat16, __hip_bfloat16, (vllm::Fp8KVCacheDataType)0, "
        "__hip_bfloat16, 16, 128, 256, false, 8>(__hip_bfloat16 const*)",
        "attention", "y", "c",
    ),
    Real(
        36,
        "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext",
        "attention", "y", "?",
    ),
    Real(
        37,
        "void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<(flashinfer::MaskMode)1, 128u, "
        "2u, 8u, 4u> >(flashinfer::PagedParams)",
        "attention", "y", "c",
    ),
    Real(38, "void flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*, float)", "norm", "y", "y"),
    Real(38, "void flashinfer::norm::FusedAddRMSNormKernel<(unsigned int)8, __half>(T2 *, T2 *)", "norm", "y", "y"),
    Real(39, "create_flashinfer_kv_indices_triton", "attention metadata", "y", "-"),
    Real(40, "aiter::fmha_fwd_hd128_bf16_rtz", "attention", "y", "?"),
    Real(
        41,
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16, false, float, "
        "__nv_bfloat16, __nv_bfloat16, true, false, false>(cublasLt::cublasSplitKParams<float>, float const*)",
        "split-K reduce", "y", "n",
    ),
    Real(
        42,
        "void splitKreduce_kernel<float, float, float, float, true, false>(cublasSplitKParams<float>, float const*)",
        "split-K reduce", "y", "n",
    ),
    Real(43, "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>(float)", "gemm", "y", "n"),
    Real(43, "void gemv2N_kernel<int, int, float, float, float, float, 128, 4, 4, 4, 1>(float)", "gemm", "y", "n"),
    Real(43, "void gemvNSP_kernel<float, float, float, float, 1, 32, 4, 1024>(float)", "gemm", "y", "n"),
    Real(44, "void internal::gemvx::kernel<int, int, __nv_bfloat16, float, false, true, 7>(float)", "gemm", "y", "n"),
    Real(45, "void gemmk1_kernel<int, float, 256, 5, false, false, false, false, 0>(float)", "gemm", "y", "?"),
    Real(46, "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float const>>>(float)", "gemm", "y", "n"),
    Real(46, "void reduce_1Block_kernel<float, 128, 7, cublasGemvTensor<float>, float>(float)", "gemm", "y", "n"),
    Real(
        47,
        "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_TN_transOut_schedS_biasM_"
        "bN_ldgsts_tmaOpt_clmp_swiGlu_dynBatch_sm100f",
        "gemm", "y", "n",
    ),
    Real(48, "void moe::dev::finalize::finalizeKernelVecLoad<moe::dev::finalize::KernelParams<X, true> >(X)", "moe", "y", "c"),
    Real(
        49,
        "void moe::dev::routing::routingRenormalize::routingIndicesHistogramKernel<moe::dev::routing::X<float> >(X)",
        "moe", "c", "n",
    ),
    Real(50, "_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu", "gemm", "y", "n"),
    Real(51, "void deep_gemm::sm90_fp8_gemm_1d2d_impl<(unsigned int)0, (unsigned int)7168>(float *)", "gemm", "y", "c"),
    Real(52, "triton_poi_fused_add_mul_silu_3", "fused", "y", "y"),
    Real(53, "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_7", "fused", "y", "c"),
    Real(54, "triton_per_fused__softmax_2", "fused", "y", "c"),
    Real(55, "triton_tem_fused_mm_0", "gemm", "y", "n"),
    Real(55, "triton_mm_12", "gemm", "y", "n"),
    Real(56, "triton__0d1d2d3d", "fused", "y", "?"),
    Real(
        57,
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>, "
        "std::array<char *, (unsigned long)3>>(int, T2, T3)",
        "elementwise", "y", "y",
    ),
    Real(
        58,
        "void at::native::unrolled_elementwise_kernel<at::native::CUDAFunctor_add<float>, std::array<char *, "
        "(unsigned long)3>, (int)4, TrivialOffsetCalculator<(int)2, unsigned int>, TrivialOffsetCalculator<(int)1, "
        "unsigned int>, at::native::memory::LoadWithCast<(int)2>, at::native::memory::StoreWithCast<(int)1>>(int, T1)",
        "elementwise", "y", "y",
    ),
    Real(
        58,
        "void at::native::elementwise_kernel<(int)128, (int)2, void at::native::gpu_kernel_impl_nocast<"
        "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>>("
        "at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)",
        "elementwise", "y", "y",
    ),
    Real(
        59,
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>, std::array<char *, "
        "(unsigned long)1>>(int, T2, T3)",
        "fill", "y", "y",
    ),
    Real(
        60,
        "void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, at::native::MeanOps<float, float, "
        "float, float>, unsigned int, float, (int)4, (int)4>>(T3)",
        "reduction", "y", "n",
    ),
    Real(
        61,
        "void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float, (bool)0>(int, T2, const T1 *)",
        "norm", "y", "y",
    ),
    Real(62, "void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*, c10::BFloat16 const*)", "norm", "y", "c"),
    Real(62, "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)", "norm", "y", "c"),
    Real(
        63,
        "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel<c10::BFloat16>, true>(c10::BFloat16*)",
        "activation", "y", "y",
    ),
    Real(64, "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, c10::BFloat16*)", "rotary", "y", "y"),
    Real(
        65,
        "void vllm::scaled_fp8_quant_kernel_strided<c10::BFloat16, c10::Float8_e4m3fn>(c10::Float8_e4m3fn*)",
        "quantisation", "y", "y",
    ),
    Real(66, "void <unnamed>::softmax_warp_forward<float, float, float, (int)6, (bool)0, (bool)0>(T2 *)", "softmax", "y", "y"),
    Real(
        66,
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, "
        "at::native::(anonymous namespace)::SoftMaxForwardEpilogue>(float*, float const*, int)",
        "softmax", "y", "y",
    ),
    *[
        Real(
            67,
            f"void at::native::<unnamed>::CatArrayBatchedCopy{suffix}<at::native::<unnamed>::OpaqueType<(unsigned int)"
            "2>, unsigned int, (int)1, (int)128, (int)1>(char *)",
            "copy", "y", "y",
        )
        for suffix in ("", "_vectorized", "_contig")
    ],
    Real(68, "void at::native::vectorized_gather_kernel<(int)16, long>(char *, char *, T2 *, int)", "index", "y", "y"),
    Real(
        68,
        "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<at::native::index_kernel_impl<"
        "at::native::OpaqueType<2> >(at::TensorIteratorBase&, c10::ArrayRef<long>)::{lambda(char*, char const*, long)#1}"
        ">(at::TensorIteratorBase&)::{lambda(int)#1}>(long)",
        "index", "y", "y",
    ),
    Real(
        69,
        "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<"
        "at::native::index_put_kernel_impl<at::native::OpaqueType<4> >(at::TensorIterator&, c10::ArrayRef<long>)::"
        "{lambda(char*, char const*, long)#1}>(at::TensorIteratorBase&)::{lambda(int)#1}>(long)",
        "index", "c", "?",
    ),
    Real(
        70,
        "void at::native::(anonymous namespace)::indexFuncLargeIndex<float, long, unsigned int, 2, 2, -2, true, "
        "at::native::(anonymous namespace)::ReduceAdd>(at::cuda::detail::TensorInfo<float, unsigned int>)",
        "index", "n", "n",
    ),
    Real(
        71,
        "void at::native::_scatter_gather_elementwise_kernel<128, 8, at::native::_cuda_scatter_gather_internal_kernel<"
        "true, float>::operator()<at::native::ReduceAdd>(at::TensorIterator&, long)::{lambda(int)#1}>(int)",
        "index", "n", "n",
    ),
    Real(
        72,
        "void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_warp_per_row_1<float, float, float>()",
        "embedding", "c", "n",
    ),
    Real(
        73,
        "void cub::CUB_200200_800_NS::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<float>, false, float>(X)",
        "sort", "y", "y",
    ),
    Real(
        73,
        "void at_cuda_detail::cub::DeviceSegmentedRadixSortKernel<at_cuda_detail::cub::Policy<float>, true, float>(X)",
        "sort", "y", "y",
    ),
    Real(
        74,
        "void at_cuda_detail::cub::DeviceScanKernel<at_cuda_detail::cub::DeviceScanPolicy<float>::Policy600, "
        "float const*, float*, at_cuda_detail::cub::ScanTileState<float, true>, std::plus<float>, int>(float const*)",
        "scan", "n", "n",
    ),
    Real(
        75,
        "void cub::DeviceReduceByKeyKernel<cub::Policy600, long*, long*, float*, float*, int*, int>(long*)",
        "reduction", "n", "n",
    ),
    Real(76, "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)", "communication", "y", "y"),
    Real(
        77,
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "communication", "c", "c",
    ),
    Real(78, "ncclDevKernel_AllReduce_Sum_bf16_NVLS(ncclDevKernelArgsStorage<4096ul>)", "communication", "n", "n"),
    Real(79, "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication", "y", "y"),
    Real(79, "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "communication", "y", "y"),
    Real(
        80,
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)",
        "communication", "?", "?",
    ),
    *[
        Real(
            81,
            f"void vllm::cross_device_reduce_{stages}stage<__nv_bfloat16, 2>(vllm::RankData*, vllm::RankSignals)",
            "communication", "y", "c",
        )
        for stages in (1, 2)
    ],
    Real(
        82,
        "Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT128x160x64_MI16x16x1_SN_LDSB0_GRVWA8_GSU1_WG32_8_1_WGM6",
        "gemm", "c", "n",
    ),
]  # fmt: skip
"""Row 77 departs from what is often said (the same bits on every run): stock NCCL enters this kernel for NVLS too."""
