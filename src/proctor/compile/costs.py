"""What compiling takes besides time per call: dispatch, operators or kernels, memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from proctor.compile.timing import Call, MonotonicClock
from proctor.engines.compiling.apply import compile_in_place
from proctor.engines.compiling.settings import Compile
from proctor.engines.compiling.targets import Target

DISPATCH_CALLS, DISPATCH_ROUNDS = 1000, 9
_GRAPH = "## Call CompiledFxGraph"
"""How the profiler calls one call of a graph that inductor made code for."""


class _Nothing(torch.nn.Module):
    """Does next to nothing, once."""

    def forward(self, x: Any) -> Any:
        return x + 1


def dispatch_seconds(how: Compile, device: Any) -> float:
    """What one compiled call costs beyond its work: a module that adds one to one number, compiled less eager.

    The median of `DISPATCH_ROUNDS` interleaved rounds of `DISPATCH_CALLS` calls. It is wall time of the host, since the
    host is what dispatch keeps busy.
    """
    holder = torch.nn.Module()
    holder.add_module("nothing", _Nothing())
    module: Any = holder.get_submodule("nothing")
    x = torch.zeros(1, device=device)
    eager: Callable[[], Any] = lambda: module(x)  # noqa: E731 (the same call in both arms)
    compile_in_place(holder, [Target("nothing", ("nothing",))], how)
    compiled = module._compiled_call_impl
    clock = MonotonicClock(lambda: wait_for(device))
    differences = []
    for number in range(-1, DISPATCH_ROUNDS):
        seconds = {}
        for arm in (None, compiled) if number % 2 else (compiled, None):
            module._compiled_call_impl = arm
            seconds[arm is None] = clock.seconds(eager, DISPATCH_CALLS) / DISPATCH_CALLS
        if number >= 0:
            differences.append(seconds[False] - seconds[True])
    return median(differences)


def operators(call: Call, device: Any) -> int | None:
    """Kernels that one call launches on a GPU; on a CPU operators that torch dispatches, those without others inside.

    What a compiled graph does in its own generated code is not seen on a CPU: its call counts as one. None where the
    profiler does not work.
    """
    kinds = [torch.profiler.ProfilerActivity.CPU]
    on_gpu = device.type == "cuda"
    if on_gpu:
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    try:
        with torch.profiler.profile(activities=kinds) as profile:
            call()
            wait_for(device)
        events = profile.events()
    except RuntimeError:
        return None
    if events is None:
        return None
    if on_gpu:
        return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in events)
    return sum(_counts(event) for event in events)


def _counts(event: Any) -> bool:
    return event.name.startswith(_GRAPH) or ("::" in event.name and not event.cpu_children)


def memory_of(device: Any) -> int:
    """Bytes: allocated on a GPU, resident in this process on a CPU."""
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated(device))
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def wait_for(device: Any) -> None:
    """Returns when the device has nothing left to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
