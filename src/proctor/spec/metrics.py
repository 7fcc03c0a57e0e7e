"""Prometheus metrics of a run."""

from __future__ import annotations

from pydantic import Field

from proctor.spec.model import SpecModel


class MetricsSpec(SpecModel):
    """How a run goes, for Prometheus: ``metrics.prom`` in a run directory on a local disk, and a port. Needs the extra
    ``proctor[metrics]``."""

    port: int | None = Field(default=None, ge=1, le=65535)
    """Port on 127.0.0.1 of the driver's machine on which they are served, too. Default: none."""
