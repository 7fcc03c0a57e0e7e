"""Names are untrusted text: a hundred thousand characters of anything must cost no more than a pass over them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from proctor.trace.names import decode, line_up, normalise, parts, risks_of, short_name

MANY = 100_000
PIECES = [
    "a", "a::", "<", ">", "(", ")", "()", "a<", "(int)", "(bool)0", " ", "const ", "const a", "unsigned ", "void ",
    "-1", "operator()", "[lambda(", "::{lambda(", "()::", "[clone ", "_GLOBAL__N__", ") const", " const&", "_", "x1",
    "1x1_", "triton_poi_fused_", "add_", "nvjet_tst_", "sm80_xmma_gemm_f32", "_f32f32", "cutlass_80_tensorop_",
    "flash_attn", "FlashAttnFwd", "CollectiveMainloopFwdSm90<", "cute::C<1>,", "ncclDevKernel_AllReduce_",
    "Cijk_Alik_Bljk_", "WG1_", "fmhaSm100aKernel_Qkv", "P16", "bmm_", "t1x1x1_", "at::native::", "gpu_kernel_impl<",
    "vllm::", "quant", "norm", "split_k", "rope_", "reduce_kernel", "sample_", "\x00", "\n", "é", "🙂",
]  # fmt: skip
STARTS = ["", "triton_", "at::native::vectorized_elementwise_kernel<", "cutlass::device_kernel<"]


@pytest.mark.slow
@pytest.mark.parametrize("start", STARTS)
def test_no_name_takes_long(start: str) -> None:
    """In a process of its own with a limit on CPU time: all need seconds together, one slow pattern needs hours."""
    code = f"""
import resource
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
from proctor.trace.names import Launch, decode, normalise, parts, risks_of, short_name
from tests.trace.names.test_hostile import MANY, PIECES
for piece in PIECES:
    name = {start!r} + piece * (MANY // len(piece))
    for call in (parts, short_name, risks_of):
        call(name)
    decode(name, Launch(block=(1, 1, 1), dynamic_shared=1, cluster=(1, 1, 1)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=110)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "name", ["", " ", "(", ")", "<", ">", "<>", "()", "::", "\x00", "void", "operator", "f<", "f>(", "a<b>(c"]
)
def test_broken_names_are_read_as_far_as_they_go(name: str) -> None:
    assert isinstance(normalise(name), str)
    assert isinstance(short_name(name), str)
    assert isinstance(parts(name).function, str)
    assert line_up().place(name).category == "other"
    assert decode(name).fields == ()
    assert risks_of(name).entry == ""


def test_deep_templates_do_not_overflow_the_stack() -> None:
    name = "at::native::f<" * 20_000 + "int" + ">" * 20_000
    assert normalise(name) == name
    assert decode(name).family == "at::native"
