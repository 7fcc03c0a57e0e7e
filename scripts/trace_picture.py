"""Makes docs/assets/timeline.png: `proctor trace export` of a trace that no GPU ever ran, in a browser.

    PYTHONPATH=. python scripts/trace_picture.py docs/assets/timeline.png     # needs playwright and Chromium

Two ranks decode with a small transformer; names and times are invented, shaped like those of real ones. The second
rank is late for every fourth all-reduce, so the first waits in it.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from proctor.trace import open_trace
from proctor.trace.export import export
from tests.trace.exports import Export, process_id

ATTENTION = "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<(int)128, (int)64, (int)128, (int)4>>"
COMBINE = "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<(int)128, (int)64, (int)128, (int)4>>"
CACHE = "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0>"
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
LAYER = (
    ("input_norm", "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, (int)8>", 6),
    ("qkv_proj", "nvjet_tst_64x8_64x16_4x2_h_bz_TNT", 21),
    ("rotary", "void vllm::rotary_embedding_kernel<c10::BFloat16, (bool)1>", 5),
    ("attention", CACHE, 4),
    ("attention", ATTENTION, 34),
    ("attention", COMBINE, 7),
    ("o_proj", "nvjet_tst_64x8_64x16_1x4_h_bz_splitK_TNT", 16),
    ("all_reduce", REDUCE, 19),
    ("post_norm", "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, (int)8>", 6),
    ("gate_up_proj", "nvjet_tst_128x8_64x12_2x1_v_bz_TNT", 48),
    ("act", "void vllm::act_and_mul_kernel<c10::BFloat16, vllm::silu_kernel<c10::BFloat16>, (bool)1>", 5),
    ("down_proj", "nvjet_tst_64x8_64x16_2x4_h_bz_TNT", 29),
    ("all_reduce", REDUCE, 19),
)
US = 1_000
LAYERS, STEPS = 8, 3
WIDTH, HEIGHT, ZOOM = 1400, 480, 11
POINT = (1085, 87)


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory) / "decode.sqlite"
        write(trace)
        page = Path(directory) / "decode.html"
        with open_trace(trace) as opened:
            export(opened, page)
        shoot(page, target)


class Ranks:
    """Two ranks, a thread and a GPU each: how far they are, and the export that they fill."""

    def __init__(self, made: Export, late: int) -> None:
        self.made, self.late = made, late
        self.chance = random.Random(11)
        self.cpu = [0, 0]
        self.gpu = [0, 0]
        self._correlation = 0

    def step(self, number: int) -> None:
        began = list(self.cpu)
        for rank in (0, 1):
            at = self.cpu[rank] + 12 * US
            self.made.copy(at, at + 9 * US, bytes=196_608, pid=100 + rank, device=rank, stream=13)
            self.gpu[rank] = at
        for layer in range(LAYERS):
            self.layer(late=self.late if layer % 4 == 2 else 0)
        for rank in (0, 1):
            done = self.gpu[rank] + 4 * US
            self.made.sync(self.cpu[rank], self.gpu[rank], pid=100 + rank, device=rank)
            self.made.call("cudaStreamSynchronize_v3020", self.cpu[rank], done, pid=100 + rank)
            self.made.annotation(f"decode step {number}", began[rank], done + 2 * US, pid=100 + rank)
            self.cpu[rank] = done + 60 * US

    def layer(self, *, late: int) -> None:
        began = list(self.cpu)
        for scope, name, usual in LAYER:
            together = scope == "all_reduce"
            called = [self.called(scope, rank) for rank in (0, 1)]
            behind = [0, late if together else 0]
            starts = [max(self.gpu[rank] + 1_200, called[rank] + 6 * US) + behind[rank] for rank in (0, 1)]
            ends = [starts[rank] + int(usual * US * self.chance.uniform(0.97, 1.05)) for rank in (0, 1)]
            self.gpu = [max(ends)] * 2 if together else ends  # no rank leaves an all-reduce before the last has come
            for rank in (0, 1):
                self.launch(name, called[rank], starts[rank], self.gpu[rank], rank)
        for rank in (0, 1):
            self.made.annotation("layer", began[rank], self.cpu[rank], pid=100 + rank)

    def called(self, scope: str, rank: int) -> int:
        """When the CPU asks for the next kernel, in a range of that name."""
        start = self.cpu[rank]
        self.cpu[rank] += int(self.chance.uniform(4, 7) * US)
        self.made.annotation(scope, start, self.cpu[rank], pid=100 + rank)
        return start + US

    def launch(self, name: str, called: int, start: int, end: int, rank: int) -> None:
        self._correlation += 1
        pid, same = 100 + rank, self._correlation
        self.made.call("cudaLaunchKernel_v7000", called, called + 2 * US, pid=pid, correlation=same)
        self.made.kernel(name, start, end, pid=pid, device=rank, correlation=same, grid=(132, 1, 1))


def write(path: Path, late: int = 30 * US) -> None:
    """A trace in which the second rank is `late` nanoseconds late for every fourth all-reduce."""
    with Export(path) as made:
        ranks = Ranks(made, late)
        for rank in (0, 1):
            made.gpu(rank)
            made.row("PROCESSES", globalPid=process_id(100 + rank), pid=100 + rank, name=f"rank {rank}")
        for number in range(STEPS):
            ranks.step(number)


def shoot(page: Path, target: Path) -> None:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        view.goto(page.as_uri())
        view.wait_for_timeout(1_000)
        view.mouse.move(WIDTH * 0.21, POINT[1])
        for _ in range(ZOOM):
            view.mouse.wheel(0, -100)
            view.wait_for_timeout(100)
        view.mouse.click(*POINT)
        view.mouse.move(5, 5)
        view.wait_for_timeout(300)
        view.screenshot(path=str(target))
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
