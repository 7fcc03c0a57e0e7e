"""What a run would do, without doing it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from pyroaring import BitMap64

from proctor.audit.conduct import Auditor
from proctor.capacity.cluster import wanted_cpus
from proctor.results.settle import done_ids
from proctor.rows import ImagePart, Prompt, Sample, UserError, told
from proctor.runner.begin import check
from proctor.runner.exam import Exam
from proctor.sources.samples import to_samples
from proctor.spec import RunSpec, warnings_of


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """The audit before a run.

    Attributes:
        checkpoint: which one.
        others: checkpoints of the run that are not audited.
        rows, arms: how many.
        cost: what it asks of the engine; None where it will fail.
        trouble: why it will fail; empty if nothing speaks for that.
    """

    checkpoint: str
    rows: int = 0
    arms: int = 0
    cost: dict[str, int] | None = None
    trouble: str = ""
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What would run.

    Attributes:
        rows: rows of the run.
        source_rows: rows of the source, whether or not the run has all of them.
        columns: the source's columns and their types.
        blocks: blocks that a first sweep over all of its rows would have.
        data_bytes: estimate of the bytes that they hold.
        todo: rows that each checkpoint has left, given what the run directory already holds.
        preview: the first row's prompt as text, images as ``[image]``.
        cpus, gpus: what the engines and the stream beside them ask of Ray.
        warnings: settings without effect.
        audit: what the audit before the run takes; None without one.
    """

    rows: int
    source_rows: int
    columns: dict[str, str]
    blocks: int
    data_bytes: int
    todo: dict[str, int]
    preview: str
    cpus: float
    gpus: float
    warnings: list[str]
    audit: AuditPlan | None = None


def make_plan(exam: Exam) -> Plan:
    """Plans a run without side effects: reads ids and one row, writes nothing, starts no engine.

    Raises:
        UserError: the engine cannot work, or the run directory holds another run.
    """
    spec = exam.spec
    check(exam)
    groups = exam.source.groups(exam.expected, spec.stream.block_rows, int(spec.stream.block_mb * 1e6))
    return Plan(
        rows=len(exam.expected),
        source_rows=exam.source_rows,
        columns={field.name: str(field.type) for field in exam.source.columns()},
        blocks=len(groups),
        data_bytes=sum(group.size_bytes for group in groups),
        todo={c.name: len(exam.expected) - _done(exam, c.name) for c in spec.engine.checkpoints},
        preview=_preview(exam),
        cpus=wanted_cpus(spec),
        gpus=spec.engine.replicas * spec.engine.gpus_per_replica,
        warnings=warnings_of(spec),
        audit=None if spec.audit is None else _audit(spec),
    )


def _audit(spec: RunSpec) -> AuditPlan:
    """What the audit takes; whatever keeps it from being made is no reason not to run."""
    checkpoint, *others = [one.name for one in spec.engine.checkpoints]
    try:
        preparation = Auditor(spec, checkpoint).preparation()
    except UserError as error:
        return AuditPlan(checkpoint, trouble=told(error), others=tuple(others))
    design, cost = preparation.design, preparation.cost
    takes = msgspec.to_builtins(cost)
    return AuditPlan(checkpoint, len(design.rows), len(design.arms), takes, others=tuple(others))


def _done(exam: Exam, checkpoint: str) -> int:
    return len(done_ids(exam.run.results, checkpoint) & exam.expected)


def _preview(exam: Exam) -> str:
    first = exam.source.groups(BitMap64([exam.expected.min()]), 1) if exam.expected else []
    blocks = [block for group in first for block in exam.source.read(group)]
    for sample in (s for block in blocks for s in to_samples(block, exam.spec.source.columns)):
        if isinstance(sample, Sample):
            try:
                return prompt_text(exam.task.prompt(sample))
            except Exception as error:  # a task may raise anything, and here it says what every row may say
                return f"(the task cannot make the first prompt: {told(error)})"
        return f"(the first row cannot be read: {sample.failure.message})"
    return "(no rows)"


def prompt_text(prompt: Prompt) -> str:
    """A prompt as a person reads it."""
    lines = []
    for message in prompt:
        parts: list[Any] = ["[image]" if isinstance(part, ImagePart) else part.text for part in message.parts]
        lines.append(f"{message.role}: {' '.join(parts)}")
    return "\n".join(lines)
