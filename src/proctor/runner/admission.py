"""Before a run: does it fit? One that does not is refused while nothing has been started, with the arithmetic."""

from __future__ import annotations

from dataclasses import replace

import ray

from proctor.capacity import Plan, cluster_of, from_ray, plan
from proctor.results.settle import done_ids
from proctor.rows import UserError
from proctor.runner.exam import Exam

LEAST_ROWS = 10_000
LEAST_BYTES = 100_000_000
"""A source with fewer rows and fewer bytes is not worth the seconds that its sample takes: whatever its blocks take,
there are few of them. Engines on GPUs are always worth it."""
_MB = 1_000_000


def planned(exam: Exam, *, force: bool = False) -> tuple[Exam, Plan | None]:
    """Plans the run (see `proctor.capacity`). What it may take of the nodes is then part of the spec: what the spec
    says itself, or else what the plan says.

    Args:
        exam: the run.
        force: a run that does not fit goes ahead all the same, with nothing but the spec's own limits.

    Returns:
        The exam with these limits, and the plan; None for a run that is too small to plan.

    Raises:
        UserError: the run does not fit.
    """
    spec = exam.spec
    groups = exam.source.groups(exam.expected, spec.stream.block_rows, int(spec.stream.block_mb * _MB))
    small = len(exam.expected) < LEAST_ROWS and sum(group.size_bytes for group in groups) < LEAST_BYTES
    if small and not spec.engine.gpus_per_replica:
        return exam, None
    cluster = from_ray(ray.nodes()) if ray.is_initialized() else cluster_of(spec)
    left = _left(exam)
    found = plan(spec, cluster, source=exam.source, rows=sum(left), checkpoints=sum(map(bool, left)))
    if found.reasons and not force:
        raise _refusal(found)
    if found.reasons or spec.capacity is not None:
        return exam, found
    return replace(exam, spec=spec.model_copy(update={"capacity": found.capacity})), found


def _left(exam: Exam) -> list[int]:
    """Rows to do, of each checkpoint."""
    names = [checkpoint.name for checkpoint in exam.spec.engine.checkpoints]
    return [len(exam.expected) - len(done_ids(exam.run.results, name) & exam.expected) for name in names]


def _refusal(found: Plan) -> UserError:
    first, *others = found.reasons
    more = f" [and {len(others)} more]" if others else ""
    changes = ", ".join(f"{change.key}: {change.after}" for change in found.changes)
    cure = f"set {changes}" if changes else "see `proctor plan --why`"
    return UserError(
        f"does not fit: {first.what} of {first.where}: {first.formula}{more}",
        where="capacity",
        fix=f"{cure}; --force runs it all the same",
    )
