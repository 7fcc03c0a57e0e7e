"""Everything the doctor looks at, for a run or for no run in particular."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from proctor.doctor.clusters import look_at_cluster, look_at_ray
from proctor.doctor.engines import LIBRARIES, look_at_engine
from proctor.doctor.findings import Check, Finding, examine
from proctor.doctor.gpus import look_at_gpus
from proctor.doctor.machine import look_at_disk, look_at_limits, look_at_machine
from proctor.doctor.packages import look_at_packages, look_at_requires
from proctor.doctor.places import look_at_run_dir, look_at_source
from proctor.doctor.services import look_at_metrics, look_at_server, look_at_trackers
from proctor.spec import OpenAIEngineSpec, RunSpec

SECONDS = 8.0
"""Most seconds that a check may take; all are done at the same time."""
_MARGIN = 0.9
"""Of its time, what a check gives to what it waits for itself: it can then say more than that there was no answer."""


def examination(
    spec: RunSpec | None = None, cluster: str | None = None, seconds: float = SECONDS, more: Sequence[Check] = ()
) -> list[Finding]:
    """Looks at this machine, and at what a run needs.

    Args:
        spec: the run; None: what any run needs.
        cluster: address of a Ray cluster; default: the spec's.
        seconds: most time for each check, and so for all.
        more: what else to look at.
    """
    return examine([*_checks(spec, cluster, seconds * _MARGIN), *more], seconds)


def _checks(spec: RunSpec | None, cluster: str | None, seconds: float) -> Iterator[Check]:
    yield Check("python", "packages", look_at_packages, needed=True)
    if spec is not None:
        yield Check("python", "requires", partial(look_at_requires, spec), needed=True)
    yield Check("machine", "memory", look_at_machine)
    yield Check("machine", "disk", look_at_disk, needed=True)
    yield Check("machine", "limits", look_at_limits)
    yield Check("gpu", "GPUs", partial(look_at_gpus, spec, seconds))
    yield Check("ray", "ray", look_at_ray, needed=True)
    address = cluster or (spec.ray.address if spec is not None else None)
    if address is not None:
        yield Check("ray", "cluster", partial(look_at_cluster, address, spec, seconds), needed=True)
    if spec is None:
        for kind in LIBRARIES:
            yield Check("engine", kind, partial(look_at_engine, kind, None, seconds))
    else:
        yield from _checks_of_run(spec, seconds)


def _checks_of_run(spec: RunSpec, seconds: float) -> Iterator[Check]:
    if spec.engine.kind in LIBRARIES:
        yield Check("engine", spec.engine.kind, partial(look_at_engine, spec.engine.kind, spec, seconds), needed=True)
    if isinstance(spec.engine, OpenAIEngineSpec):
        yield Check("engine", "openai", partial(look_at_server, spec.engine, seconds), needed=True)
    yield Check("storage", "source.path", partial(look_at_source, spec, seconds), needed=True)
    yield Check("storage", "run_dir", partial(look_at_run_dir, spec, seconds), needed=True)
    if spec.metrics is not None:
        yield Check("metrics", "metrics", partial(look_at_metrics, spec.metrics.port))
    yield Check("tracker", "trackers", partial(look_at_trackers, spec), needed=True)
