"""The task of the soak: that of the fault matrix, for rows with and without an image."""

from __future__ import annotations

from benchmarks.faults.task import Echo
from proctor.rows import Message, Prompt, Sample, TextPart


class SometimesSeen(Echo):
    """Asks for the question back; only some rows have an image."""

    def prompt(self, sample: Sample) -> Prompt:
        """The row's question, behind its image if it has one."""
        whole = super().prompt(sample)
        return whole if sample.images else (Message("user", (TextPart(sample.fields["question"]),)),)
