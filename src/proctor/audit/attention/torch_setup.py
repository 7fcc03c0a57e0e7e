"""The parts of the workbench that compute need torch: is it there, is the device, and what arithmetic is in force."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from proctor.rows import UserError


def torch_module() -> Any:
    """The module `torch`.

    Raises:
        UserError: it is not installed.
    """
    if find_spec("torch") is None:
        raise UserError(
            "the attention workbench computes with torch, which is not installed here",
            fix="pip install 'proctor[transformers]'",
        )
    import torch

    return torch


def check_device(name: str) -> None:
    """Does torch compute there?

    Raises:
        UserError: it cannot.
    """
    torch = torch_module()
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:
        what = str(error).splitlines()[0]
        raise UserError(
            f"torch cannot compute on {name!r}: {what}", where="device", fix="cpu, or cuda on a GPU"
        ) from None


@contextmanager
def full_precision(device: str) -> Iterator[None]:
    """Within it, products of float32 matrices are computed in float32 (not in TF32 or bfloat16), without gradients.

    Raises:
        UserError: torch cannot compute on `device`.
    """
    check_device(device)
    torch = torch_module()
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def surroundings(device: str) -> dict[str, str]:
    """What the numbers depend on besides the seed: torch, device, threads. They do not repeat bit by bit elsewhere."""
    torch = torch_module()
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else torch.backends.cpu.get_cpu_capability()
    return {"torch": torch.__version__, "device": device, "hardware": name, "threads": str(torch.get_num_threads())}
