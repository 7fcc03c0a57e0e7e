"""Limits of the GPUs of a trace, each looked up once; what the trace does not say, a user may, by a product's name."""

from __future__ import annotations

import msgspec

from proctor.rows import UserError
from proctor.trace.launches.architectures import product_names
from proctor.trace.launches.occupancy import Limits, limits_of
from proctor.trace.model import Gpu
from proctor.trace.trace import Trace


class GpuLimits:
    """Limits by device and process.

    Attributes:
        named: limits of the GPU that the user named; None if none was.
        used: whether any answer so far took something from `named`.
    """

    def __init__(self, trace: Trace, named: str | None = None) -> None:
        self.named = None if named is None else named_limits(named)
        self.used = False
        self._trace = trace
        self._known: dict[tuple[int | None, int | None], Limits | None] = {}

    def of(self, device: int | None, process: int | None) -> Limits | None:
        """What the trace says, completed by what the user says; None where neither says enough."""
        key = (device, process)
        if key not in self._known:
            gpu = Gpu(device=-1) if device is None else self._trace.gpu(device, process)
            self._known[key] = self._completed(limits_of(gpu), gpu)
        return self._known[key]

    def _completed(self, own: Limits | None, gpu: Gpu) -> Limits | None:
        """What the trace says stands: the user's word is for what it leaves open, if it is of the same kind of GPU."""
        named = self.named
        if named is None or (own is not None and (own.sm_count is not None or own.compute != named.compute)):
            return own
        self.used = True
        if own is not None:
            return msgspec.structs.replace(own, sm_count=named.sm_count, sm_origin=named.sm_origin)
        if gpu.sm_count:
            return msgspec.structs.replace(named, sm_count=gpu.sm_count, sm_origin=gpu.origin)
        return named


def named_limits(name: str) -> Limits:
    """Limits of a product, e.g. ``H100``, ``A100-SXM4-40GB`` or ``RTX 4090``.

    Raises:
        UserError: the name is not in the table.
    """
    found = limits_of(Gpu(device=0, name=name))
    if found is None:
        raise UserError(f"no figures for a GPU called {name!r}", fix=f"known are: {', '.join(product_names())}")
    return found
