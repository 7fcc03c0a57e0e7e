"""What a GPU can show of compiling a vision encoder, in one table and less than four minutes.

``python -m benchmarks.gpu_compile``: a random tower (24 blocks of 1,024, mergers of two widths) in bfloat16, eager
against compiled by the GPU's own events, kernels and dispatch of a call, seconds of compiling with an empty cache and a
full one, outputs against float64, and CUDA graphs. Without an NVIDIA GPU it says so and ends with 1.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLVisionConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLVisionModel

from benchmarks.gpu_transfer import Row, rows, table
from proctor.compile.arms import Arms
from proctor.compile.captured import Caught, catching
from proctor.compile.compared import levels_of, some_of
from proctor.compile.costs import dispatch_seconds, memory_of, operators, wait_for
from proctor.compile.gate import gate_target
from proctor.compile.model import ENCODER
from proctor.compile.timing import Arm, Clock, CudaClock, MonotonicClock, Subject, calibrated, interleaved
from proctor.engines.compiling.apply import compile_in_place, undo
from proctor.engines.compiling.settings import Compile
from proctor.engines.compiling.targets import Target, find_targets

LIMIT_SECONDS = 230
"""When the whole process ends, whatever hangs."""
PATCH = 3 * 2 * 16 * 16
ROUNDS, WARMUPS = 9, 3


class Size(NamedTuple):
    """How large everything is.

    Attributes:
        images: shapes by name, each as images and patches along a side.
    """

    depth: int
    hidden: int
    images: dict[str, tuple[int, int]]


FULL = Size(24, 1024, {"1 image of 512x512": (1, 32), "8 images of 512x512": (8, 32), "32 images of 256x256": (32, 16)})


class Bench:
    """One tower on one device.

    Args:
        device: ``cuda`` or ``cpu``.
        size: of the tower and its inputs.
        backend: that compiles.
        dtype: of weights and pixels.
    """

    def __init__(self, device: str, size: Size = FULL, backend: str = "inductor", dtype: Any = torch.bfloat16) -> None:
        torch.manual_seed(0)
        self.device, self.size, self.how = torch.device(device), size, Compile(backend=backend)
        config = Qwen3VLVisionConfig(
            depth=size.depth,
            hidden_size=size.hidden,
            num_heads=size.hidden // 64,
            intermediate_size=4 * size.hidden,
            out_hidden_size=2 * size.hidden,
            deepstack_visual_indexes=[size.depth // 4, size.depth // 2],
        )
        config._attn_implementation = "sdpa"
        self.tower = Qwen3VLVisionModel(config).to(self.device, dtype).eval()
        self.targets = find_targets(self.tower)
        self.arms = Arms(self.tower, self.how)
        self.clock: Clock = CudaClock(torch.cuda) if self.device.type == "cuda" else MonotonicClock()
        self.inputs = {name: self._made(*shape, dtype) for name, shape in size.images.items()}
        self.calls = {name: self._caught(name) for name in self.inputs}
        self.ready: dict[str, dict[str, list[Caught]]] = {}

    def _made(self, images: int, side: int, dtype: Any) -> tuple[Any, Any]:
        pixels = torch.randn(images * side * side, PATCH, device=self.device, dtype=dtype)
        return pixels, torch.tensor([[1, side, side]] * images, device=self.device)

    def _caught(self, shape: str) -> dict[str, list[Caught]]:
        with torch.inference_mode(), catching(self.tower, {t.name: t.modules for t in self.targets}) as calls:
            self.encode(shape)
        return calls

    def encode(self, shape: str) -> Any:
        pixels, grid = self.inputs[shape]
        return self.tower(pixels, grid_thw=grid)

    @torch.inference_mode()
    def compiling(self) -> list[Row]:
        """Seconds of the first calls at all shapes, with an empty cache on disk, and again from it."""
        passes = []
        for _ in ("cold", "warm"):
            for name in self.arms.names:
                self.arms.drop(name)
            torch.compiler.reset()
            passes.append({target.name: self._compile(target) for target in self.targets})
        found = []
        for name in self.arms.names:
            told = self.arms.seen(name)
            note = f"{told.graphs} graphs, {told.cache_hits} of {told.cache_hits + told.cache_misses} from the cache"
            cold, warm = (seconds[name] for seconds in passes)
            found.append(Row(f"{name}: compiling", f"{cold:.1f} then {warm:.1f}", "s", note))
        added = memory_of(self.device) / 2**20
        return [*found, Row("memory with everything compiled", f"{added:,.0f}", "MiB")]

    def _compile(self, target: Target) -> float:
        self.arms.add(target)
        self.arms.bare(target.name)
        self.ready[target.name] = {shape: self._caught(shape)[target.name] for shape in self.inputs}
        self.arms.to((target.name,))
        wall = MonotonicClock(lambda: wait_for(self.device))
        return sum(wall.seconds(partial(_all, calls), 1) for calls in self.ready[target.name].values())

    @torch.inference_mode()
    def timing(self) -> list[Row]:
        """Both arms of each target and of the encoder, interleaved."""
        seconds: dict[tuple[str, str, str], list[float]] = {}
        for number, timings in interleaved(list(self._subjects()), ROUNDS, WARMUPS, 0):
            for one in timings if number >= 0 else ():
                seconds.setdefault((one.target, one.shape, one.arm), []).append(one.seconds)
        found = []
        for target, shape, arm in seconds:
            if arm == "eager":
                pairs = list(zip(seconds[target, shape, "eager"], seconds[target, shape, "compiled"], strict=True))
                eager, compiled = (statistics.median(pair[place] for pair in pairs) * 1e3 for place in (0, 1))
                ratios = [one / other for one, other in pairs]
                note = f"{statistics.median(ratios):.2f}x ({min(ratios):.2f} to {max(ratios):.2f}, {len(pairs)} rounds)"
                found.append(
                    Row(f"{target}, {shape}: eager then compiled", f"{eager:.3f} then {compiled:.3f}", "ms", note)
                )
        return found

    def _subjects(self) -> Iterator[Subject]:
        for shape in self.inputs:
            for name in self.arms.names:
                eager, compiled = self.calls[shape][name], self.ready[name][shape]
                yield calibrated(self._subject(name, shape, (name,), partial(_all, eager), partial(_all, compiled)))
            whole = partial(self.encode, shape)
            yield calibrated(self._subject(ENCODER, shape, self.arms.names, whole, whole))

    def _subject(self, name: str, shape: str, on: tuple[str, ...], eager: Any, compiled: Any) -> Subject:
        arms = {"eager": Arm(partial(self.arms.to, ()), eager), "compiled": Arm(partial(self.arms.to, on), compiled)}
        return Subject(name, shape, arms, self.clock)  # type: ignore[arg-type]

    @torch.inference_mode()
    def launches(self) -> list[Row]:
        """Kernels of one unit, and what the dispatch of one compiled call costs."""
        shape = next(iter(self.inputs))
        found = [Row("dispatch of a compiled call", f"{dispatch_seconds(self.how, self.device) * 1e6:.1f}", "us")]
        for name in self.arms.names:
            self.arms.to(())
            eager = operators(partial(_all, self.calls[shape][name]), self.device)
            self.arms.to((name,))
            compiled = operators(partial(_all, self.ready[name][shape]), self.device)
            found.append(Row(f"{name}: kernels, eager then compiled", f"{eager} then {compiled}", ""))
        return found

    def graphs(self) -> list[Row]:
        """CUDA graphs instead of generated code: each target at one shape, without dynamic sizes."""
        shape = next(iter(self.inputs))
        found = []
        for target in self.targets:
            with torch.inference_mode():
                self.arms.to(())
                calls = partial(_all, self.calls[shape][target.name])
                calls()
                eager = statistics.median(self.clock.seconds(calls, 1) for _ in range(ROUNDS))
                replayed = self._replayed(target, shape)
            text = replayed if isinstance(replayed, str) else f"{eager * 1e3:.3f} then {replayed * 1e3:.3f}"
            found.append(Row(f"{target.name}: eager then CUDA graph", text, "ms", "not interleaved"))
        return found

    def _replayed(self, target: Target, shape: str) -> float | str:
        how = Compile(backend="cudagraphs", dynamic=False)
        compile_in_place(self.tower, [target], how)
        try:
            calls = partial(_all, self.ready.get(target.name, {}).get(shape) or self.calls[shape][target.name])
            for _ in range(WARMUPS):
                calls()
            return statistics.median(self.clock.seconds(calls, 1) for _ in range(ROUNDS))
        except Exception as error:  # an operator that cannot be recorded
            return f"cannot: {str(error).splitlines()[0][:60]}"
        finally:
            undo(self.tower, [target])

    def agreeing(self) -> list[Row]:
        """Outputs against float64, last: it has the compiler forget what it knew."""
        self.arms.to(())
        found = []
        for target in self.targets:
            calls = {shape: some_of(made) for shape, made in self.ready[target.name].items()}
            agreements = gate_target(self.tower, target, calls, levels_of(self.how.backend)[-1:], self.how)
            failed = [one for one in agreements if not one.passed]
            same = min(one.bitwise for one in agreements)
            note = failed[0].reason if failed else f"{100 * same:.0f} % bitwise at worst"
            passed = f"{len(agreements) - len(failed)} of {len(agreements)}"
            found.append(Row(f"{target.name}: outputs that agree", passed, "", note))
        return found

    def parts(self) -> tuple[Callable[[], list[Row]], ...]:
        """In their order."""
        return (self.compiling, self.timing, self.launches, self.graphs, self.agreeing)


def _all(calls: list[Caught]) -> None:
    for call in calls:
        call()


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    if not torch.cuda.is_available():
        print("gpu_compile needs an NVIDIA GPU and a torch for CUDA: there is none here", file=sys.stderr)
        return 1
    faulthandler.dump_traceback_later(LIMIT_SECONDS, exit=True)
    with tempfile.TemporaryDirectory(prefix="proctor-compile-", ignore_cleanup_errors=True) as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        for line in table(rows(Bench("cuda").parts())):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
