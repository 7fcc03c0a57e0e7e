"""What the doctor looks at for a fleet: one of its units, its cluster, and whom it tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path

from proctor.doctor.clusters import ray_of_dashboard
from proctor.doctor.examination import SECONDS, examination
from proctor.doctor.findings import Check, Finding
from proctor.doctor.services import look_at_metrics
from proctor.fleet.cells import expand
from proctor.fleet.finding import SEEN_ONCE, find
from proctor.fleet.folder import base_of
from proctor.fleet.limited import Limited
from proctor.fleet.webhook import Webhook
from proctor.rows import UserError
from proctor.spec import Checkpoint, RunSpec
from proctor.spec.engine import LocalEngineBase
from proctor.spec.fleet import FleetSpec, GlobSpec, WatchSpec
from proctor.spec.run import RaySpec

_ASK_SECONDS = 5.0
_ANY = Checkpoint(name="checkpoint", path="/checkpoint")


def fleet_examination(fleet: FleetSpec, cluster: str | None = None, seconds: float = SECONDS) -> list[Finding]:
    """Looks at this machine, and at what the first unit of a resolved fleet needs.

    Args:
        fleet: its spec.
        cluster: address of the cluster; default: the spec's.
        seconds: most time for each check, and so for all.
    """
    return examination(_unit(fleet), cluster or fleet.cluster.address, seconds, list(_checks(fleet)))


def check_ray(fleet: FleetSpec) -> None:
    """Whether the fleet's cluster has the Ray that its jobs would be run with, as far as that is known here; the rest
    is asked by each job. A cluster that cannot be reached now is the watcher's affair.

    Raises:
        UserError: it has another one, or lets nobody in without a token.
    """
    here = metadata.version("ray")
    try:
        address = fleet.cluster.address
        there = Limited("proctor-fleet-ray").call(lambda: ray_of_dashboard(address, _ASK_SECONDS), 2 * _ASK_SECONDS)
    except (OSError, ValueError):
        return
    if there != here and fleet.cluster.python is None:
        raise UserError(
            f"the cluster has Ray {there}, and jobs would be run with Ray {here}",
            where=f"cluster.address {fleet.cluster.address}",
            fix=f"pip install 'ray=={there}', or set cluster.python to an interpreter that has it",
        )


def _unit(fleet: FleetSpec) -> RunSpec:
    """The run spec of a unit, whatever checkpoints there are, on a cluster as its jobs are."""
    spec = expand(fleet, base_of(fleet), [[_ANY]])[0].spec
    return spec.model_copy(update={"ray": RaySpec(address="auto")})


def _checks(fleet: FleetSpec) -> Iterator[Check]:
    yield Check("fleet", "checkpoints", partial(_checkpoints, fleet), needed=True)
    if fleet.notify is not None:
        yield Check("fleet", "webhook", partial(_webhook, fleet.notify.webhook_env), needed=True)
    if fleet.metrics is not None:
        yield Check("metrics", "metrics", partial(look_at_metrics, fleet.metrics.port), needed=True)


def _checkpoints(fleet: FleetSpec) -> Iterator[Finding]:
    found = find(fleet)
    count, waiting = len(found.checkpoints), len(found.waiting)
    if not isinstance(fleet.matrix.checkpoints, GlobSpec | WatchSpec):
        yield _listed(fleet, found.checkpoints)
    elif count or isinstance(fleet.matrix.checkpoints, WatchSpec):
        # A watched directory counts one only at a second look.
        settled = sum(reason == SEEN_ONCE for reason in found.waiting.values())
        yield Finding("fleet", "checkpoints", "ok", f"{count + settled} found, {waiting - settled} not whole yet")
    else:
        first = next((f": {path}: {reason}" for path, reason in found.waiting.items()), "")
        what = f"none found, {waiting} not whole yet{first}"
        yield Finding("fleet", "checkpoints", "missing", what, "see matrix.checkpoints.glob in the spec")


def _listed(fleet: FleetSpec, checkpoints: Sequence[Checkpoint]) -> Finding:
    """Those of a list count as they are, and may lie where only the cluster's nodes see them."""
    what = f"{len(checkpoints)} listed"
    local = isinstance(_unit(fleet).engine, LocalEngineBase)
    paths = [one.path for one in checkpoints if local and one.path.startswith("/")]
    away = [path for path in paths if not Path(path).exists()]
    if not checkpoints:
        return Finding("fleet", "checkpoints", "missing", "none listed", "see matrix.checkpoints in the spec")
    if not away:
        return Finding("fleet", "checkpoints", "ok", what)
    fix = "see that the cluster's nodes have them, or correct matrix.checkpoints"
    return Finding("fleet", "checkpoints", "warning", f"{what}, {len(away)} not on this machine: {away[0]}", fix)


def _webhook(name: str) -> Iterator[Finding]:
    Webhook(name, 1.0)  # refuses a variable that holds no URL; nothing is sent
    yield Finding("fleet", "webhook", "ok", f"{name} holds a URL")
