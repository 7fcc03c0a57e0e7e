"""Limits of the GPUs of a trace, each looked up once; what the trace does not say, a user may, by a product's name."""

from __future__ import annotations

import msgspec

from proctor.rows import UserError
from proctor.trace.architectures import product_names
from proctor.trace.model import Gpu
from proctor.trace.occupancy import Limits, limits_of
from proctor.trace.trace import Trace


class GpuLimits:
    """Limits by device and process.

    Attributes:
        named: limits of the GPU that the user named; None if none was.
    """

    def __init__(self, trace: Trace, named: str | None = None) -> None:
        self.named = None if named is None else named_limits(named)
        self._trace = trace
        self._known: dict[tuple[int | None, int | None], Limits | None] = {}

    def of(self, device: int | None, process: int | None) -> Limits | None:
        """What the trace says, completed by what the user says; None where neither says enough."""
        key = (device, process)
        if key not in self._known:
            own = None if device is None else limits_of(self._trace.gpu(device, process))
            self._known[key] = self._completed(own)
        return self._known[key]

    @property
    def ignored(self) -> bool:
        """Whether the user named a GPU, and the trace itself says of every GPU asked for what it is."""
        found = [limits for limits in self._known.values() if limits is not None]
        return self.named is not None and bool(found) and all(_USER not in _said(limits) for limits in found)

    def _completed(self, own: Limits | None) -> Limits | None:
        if self.named is None or own is None:
            return own or self.named
        if own.sm_count is None and own.compute == self.named.compute:
            return msgspec.structs.replace(own, sm_count=self.named.sm_count, sm_origin=self.named.sm_origin)
        return own


_USER = "as you say"


def named_limits(name: str) -> Limits:
    """Limits of a product, e.g. ``H100``, ``A100-SXM4-40GB`` or ``RTX 4090``.

    Raises:
        UserError: the name is not in the table.
    """
    found = limits_of(Gpu(device=0, name=name))
    if found is None:
        raise UserError(f"no figures for a GPU called {name!r}", fix=f"known are: {', '.join(product_names())}")
    return msgspec.structs.replace(
        found,
        origin=f"{found.origin}, {_USER}",
        sm_origin=found.sm_origin if found.sm_count is None else f"{found.sm_origin}, {_USER}",
    )


def _said(limits: Limits) -> str:
    return f"{limits.origin} {limits.sm_origin}"
