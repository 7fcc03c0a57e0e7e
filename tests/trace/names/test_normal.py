# ruff: noqa: E501 (names of kernels are as long as they are)
"""One spelling for a kernel, whichever tool demangled it; and nothing takes long, however odd the name."""

from __future__ import annotations

import pytest

from proctor.trace.names import normalise, parts, short_name

BOTH = [  # as Nsight Systems writes it, as the PyTorch profiler writes it
    (
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<c10::BFloat16>, "
        "std::array<char *, (unsigned long)3>>(int, T2, T3)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, "
        "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)",
    ),
    (
        "void at::native::vectorized_elementwise_kernel<(int)8, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase &, "
        "at::native::GeluType)::[lambda() (instance 2)]::operator ()() const::[lambda() (instance 4)]::operator ()() "
        "const::[lambda(c10::BFloat16) (instance 1)], std::array<char *, (unsigned long)2>>(int, T2, T3)",
        "void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, "
        "at::native::GeluType)::{lambda()#2}::operator()() const::{lambda()#4}::operator()() "
        "const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(int, at::native::GeluCUDAKernelImpl("
        "at::TensorIteratorBase&, at::native::GeluType)::{lambda()#2}::operator()() const::{lambda()#4}::operator()() "
        "const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul>)",
    ),
    (
        "void at::native::elementwise_kernel<(int)128, (int)4, void at::native::gpu_kernel_impl_nocast<"
        "at::native::CUDAFunctor_add<c10::BFloat16>>(at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>"
        "(int, T3)",
        "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::CUDAFunctor_add<"
        "c10::BFloat16> >(at::TensorIteratorBase&, at::native::CUDAFunctor_add<c10::BFloat16> const&)::{lambda(int)#1}>"
        "(int, at::native::gpu_kernel_impl_nocast<at::native::CUDAFunctor_add<c10::BFloat16> >("
        "at::TensorIteratorBase&, at::native::CUDAFunctor_add<c10::BFloat16> const&)::{lambda(int)#1})",
    ),
    (
        "void <unnamed>::softmax_warp_forward<float, float, float, (int)6, (bool)0, (bool)1>(T2 *, const T1 *, int)",
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 6, false, true>(float*, float const*, int)",
    ),
    (
        "flash::prepare_varlen_num_blocks_kernel(int, const int *, const unsigned int *, bool)",
        "flash::prepare_varlen_num_blocks_kernel(int, int const*, unsigned int const*, bool)",
    ),
    (
        "void cudnn::nchwToNhwcKernel<__half, (bool)1, (cudnnKernelDataType_t)0>(T1)",
        "void cudnn::nchwToNhwcKernel<__half, true, (cudnnKernelDataType_t)0>(cudnn::params<__half>)",
    ),
    ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)",
     "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"),
    ("void f<(int)-2, (char)3, (long long)-7>(T1)", "void f<-2, (char)3, -7ll>(int)"),
]  # fmt: skip


@pytest.mark.parametrize(("nsys", "kineto"), BOTH)
def test_both_tools_spell_one_kernel_alike(nsys: str, kineto: str) -> None:
    assert nsys != kineto
    assert normalise(nsys) == normalise(kineto)


@pytest.mark.parametrize("name", [name for pair in BOTH for name in pair])
def test_a_normal_form_is_its_own(name: str) -> None:
    assert normalise(normalise(name)) == normalise(name)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("void f<(int)4>(T1)", "void f<(int)8>(T1)"),
        ("void f<(bool)0>(T1)", "void f<(bool)1>(T1)"),
        ("void f<float>(T1)", "void f<double>(T1)"),
        ("copy(int *, int)", "copy(float *, int)"),  # overloads of a plain function differ by nothing else
        ("void a::f<int>(T1)", "void b::f<int>(T1)"),
        ("void f<g()::{lambda()#1}>(T1)", "void f<g()::{lambda()#2}>(T1)"),
        ("void f<g()::{lambda(int)#1}>(T1)", "void f<g()::{lambda(float)#1}>(T1)"),
        ("void f<(cudnnKernelDataType_t)0>(T1)", "void f<(cudnnKernelDataType_t)2>(T1)"),
        ("void f<void *>(T1)", "void f<int *>(T1)"),
        ("nvjet_tst_64x8_64x16_4x2_h_bz_TNT", "nvjet_tst_64x8_64x16_4x2_h_bz_TNN"),
    ],
)
def test_different_kernels_stay_different(one: str, other: str) -> None:
    assert normalise(one) != normalise(other)


def test_forms_in_full() -> None:
    assert normalise("void scale<(int)4, (bool)1>(T1 *, const float *)") == "scale<4, true>"
    assert normalise("copy(const float *, int)") == "copy(float const*, int)"
    assert normalise("a::b(int) [clone .x] [clone .y.2]") == "a::b(int)"
    assert normalise("f<void, const void *>(T1)") == "f<void, void const*>"
    assert (
        normalise("void (anonymous namespace)::f(void (*)(int), void*)")
        == "(anonymous namespace)::f(void(*)(int), void*)"
    )
    assert normalise("  ") == ""


@pytest.mark.parametrize(
    ("name", "function", "arguments"),
    [
        ("void at::native::reduce_kernel<(int)512, (int)1>(T3)", "at::native::reduce_kernel", "512, 1"),
        ("void at::native::<unnamed>::f<int>(T1)", "at::native::f", "int"),
        ("void a::B<int>::run<float, C<2> >(T1)", "a::B::run", "int, float, C<2>"),
        ("nvjet_tst_64x8", "nvjet_tst_64x8", ""),
        ("flash::prepare(int, int)", "flash::prepare", ""),
        ("void f<(x->y)>(T1)", "f", "(x->y)"),
        ("a::operator()<3>(int)", "a::operator()", "3"),
    ],
)
def test_function_and_arguments(name: str, function: str, arguments: str) -> None:
    assert parts(name) == (function, arguments)


def test_a_name_for_tables() -> None:
    name = (
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)::"
        "[lambda() (instance 3)]::operator ()() const::[lambda() (instance 7)]::operator ()() const::[lambda(float) "
        "(instance 1)], std::array<char *, (unsigned long)2>>(int, T1)"
    )
    assert short_name(name) == "unrolled_elementwise_kernel<direct_copy_kernel_cuda(float), array<char*, 2>>"
    assert short_name(name, 20) == "unrolled_elementwis…"
    assert short_name("flash::prepare_varlen_num_blocks_kernel(int, int)") == "prepare_varlen_num_blocks_kernel"
    assert len(short_name("f" * 500)) == 80
    assert short_name("f" * 500, None) == "f" * 500
