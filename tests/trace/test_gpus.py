"""Which GPU a process means by a number, and what the trace says of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from proctor.trace import open_trace
from proctor.trace.model import Severity
from tests.trace.exports import Export, process_id


@pytest.fixture
def export(tmp_path: Path) -> Export:
    return Export(tmp_path / "t.sqlite").gpu()


def test_a_gpu_with_its_limits(export: Export) -> None:
    export.launch("k", 1, 2, 3)
    export.connection.execute("UPDATE TARGET_INFO_GPU SET memoryBandwidth = 3352320000000, uuid = 'abc'")
    file = export.close()
    with open_trace(file) as trace:
        gpu = trace.gpu(0, process_id(100))
    assert (gpu.name, gpu.sm_count, gpu.compute) == ("NVIDIA H100 80GB HBM3", 132, (9, 0))
    assert (gpu.uuid, gpu.memory_bytes_per_second) == ("abc", 3_352_320_000_000)
    assert gpu.limits["maxShmemPerSm"] == 233_472
    assert gpu.origin == "TARGET_INFO_GPU"
    assert len(trace.gpus) == 1


def test_a_gpu_with_a_name_only(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").launch("k", 1, 2, 3)
    export.connection.execute("CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT)")
    export.connection.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 'Tesla T4')")
    file = export.close()
    with open_trace(file) as trace:
        gpu = trace.gpu(0, process_id(100))
        assert (gpu.name, gpu.sm_count, gpu.compute, gpu.limits) == ("Tesla T4", None, None, {})
        assert not trace.notes


def test_a_gpu_that_is_not_described(tmp_path: Path) -> None:
    file = Export(tmp_path / "t.sqlite").launch("k", 1, 2, 3, device=3).close()
    with open_trace(file) as trace:
        assert [note.code for note in trace.notes] == ["gpu_unknown"]
        assert trace.gpu(3).origin == "not in the trace"
        assert [gpu.device for gpu in trace.gpus] == [3]


def two_kinds(tmp_path: Path, schema: str) -> Export:
    export = Export(tmp_path / "t.sqlite", schema=schema)
    export.gpu(0, "NVIDIA A40", 84).gpu(1, "NVIDIA A100-SXM4-40GB", 108)
    return export.launch("k", 1, 2, 3, pid=100).launch("k", 1, 2, 3, pid=200)


def test_a_number_means_what_its_process_says(tmp_path: Path) -> None:
    export = two_kinds(tmp_path, "3.24.14")
    export.row("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=0, pid=100, uuid="GPU-a", numMultiprocessors=84)
    export.row("TARGET_INFO_CUDA_DEVICE", gpuId=1, cudaId=0, pid=200, uuid="GPU-b", numMultiprocessors=42)
    file = export.close()
    with open_trace(file) as trace:
        assert trace.gpu(0, process_id(100)).name == "NVIDIA A40"
        other = trace.gpu(0, process_id(200))
        assert (other.name, other.uuid) == ("NVIDIA A100-SXM4-40GB", "GPU-b")
        assert other.sm_count == 42  # a slice of the GPU
        assert other.origin == "TARGET_INFO_GPU, SMs from TARGET_INFO_CUDA_DEVICE"
        (note,) = trace.notes
        assert (note.code, note.severity) == ("mixed_gpus", Severity.INFO)


def test_before_exports_said_it_mixed_gpus_are_a_warning(tmp_path: Path) -> None:
    with open_trace(two_kinds(tmp_path, "3.7.2").close()) as trace:
        (note,) = trace.notes
        assert (note.code, note.severity) == ("mixed_gpus", Severity.WARNING)
        assert "CUDA_VISIBLE_DEVICES" in note.meaning


def test_a_device_that_only_the_process_describes(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").launch("k", 1, 2, 3)
    export.row("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=0, pid=100, uuid="GPU-a", numMultiprocessors=132)
    with open_trace(export.close()) as trace:
        gpu = trace.gpu(0, process_id(100))
        assert (gpu.sm_count, gpu.uuid, gpu.name, gpu.origin) == (132, "GPU-a", "", "TARGET_INFO_CUDA_DEVICE")


def test_the_real_gpu(samples: Path) -> None:
    with open_trace(samples / "nsys/nsys-ai/mock.sqlite") as trace:
        (gpu,) = trace.gpus
        assert (gpu.name, gpu.sm_count, gpu.compute) == ("NVIDIA GeForce RTX 3080", 68, (8, 6))
        assert gpu.memory_bytes_per_second == 760_080_000_000
        assert gpu.limits["maxBlocksPerSm"] == 16


@pytest.mark.parametrize("make", [lambda e: e.gpu(0, name="x\x1b[31m" * 100), lambda e: e.gpu(2**40, sms=-1)])
def test_nonsense_about_a_gpu_does_no_harm(tmp_path: Path, make: Callable[[Export], Export]) -> None:
    with open_trace(make(Export(tmp_path / "t.sqlite").launch("k", 1, 2, 3)).close()) as trace:
        assert all(len(gpu.name) <= 200 for gpu in trace.gpus)
        assert trace.gpu(0, process_id(100)).sm_count in (None, 132)
