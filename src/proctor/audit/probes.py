"""The questions of an audit."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.prepare.probes import Probe, probes_of

__all__ = ["Probe", "probes_of", "texts_of"]


def texts_of(probes: Sequence[Probe]) -> dict[int, str]:
    """The text of each question, by row: for reports."""
    return {
        probe.request.id: "\n".join(
            getattr(part, "text", "[image]") for message in probe.request.prompt for part in message.parts
        )
        for probe in probes
    }
