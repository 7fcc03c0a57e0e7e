"""Ray's job server, as far as a fleet needs it. The only module that talks to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Protocol, TypeVar

from proctor.doctor.clusters import LET_IN
from proctor.fleet.limited import Limited
from proctor.fleet.view import Job, JobState
from proctor.rows import UserError, told
from proctor.rows.text import line_of

_T = TypeVar("_T")
_CONNECT_SECONDS, _READ_SECONDS = 5.0, 30.0
"""Limits of a request, the second one for each piece of its answer."""
_CALL_SECONDS = 120.0
"""Most seconds of a call, which is up to three requests."""
_STATUS = re.compile(r"Request failed with status code (\d+)")
_TWICE = "already exists"
_NEVER_STARTED = frozenset(
    {
        "JOB_SUPERVISOR_ACTOR_START_TIMEOUT",
        "JOB_SUPERVISOR_ACTOR_START_FAILURE",
        "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE",
        "JOB_SUPERVISOR_ACTOR_DIED",
        "JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE",
    }
)
"""Types of errors (`ray.dashboard.modules.job.common.JobErrorType`) that say nothing about the job itself."""


class UnreachableError(Exception):
    """The job server gave no answer, or none that means anything. What was asked may have happened all the same."""


class TwiceError(Exception):
    """There is a job of this id already."""


class RefusedError(Exception):
    """The job server does not take the job."""


@dataclass(frozen=True, slots=True)
class Order:
    """A job to submit.

    Attributes:
        submission: its id: the same id is never taken twice.
        entrypoint: command line for a shell.
        tickets: custom resources that its start waits for, by name.
    """

    submission: str
    entrypoint: str
    tickets: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sighting:
    """The cluster at one moment.

    Attributes:
        jobs: every job it knows, by submission id.
        gpus: of its living nodes.
        used: GPUs that are reserved by actors and tasks.
        cpus: of its living nodes.
    """

    jobs: Mapping[str, Job]
    gpus: float
    used: float
    cpus: float


class Cluster(Protocol):
    """What a watcher needs of a cluster."""

    def look(self) -> Sighting:
        """The cluster now.

        Raises:
            UnreachableError: it cannot be seen.
        """

    def submit(self, order: Order) -> None:
        """Submits a job.

        Raises:
            UnreachableError, TwiceError, RefusedError: see there.
        """

    def stop(self, submission: str) -> None:
        """Has a job ended: its processes get SIGTERM, and SIGKILL three seconds later. One that waits stays.

        Raises:
            UnreachableError: nobody took the request.
        """


class RayJobs:
    """The job server at an address such as ``http://127.0.0.1:8265``.

    Raises:
        UserError: Ray is installed without its job client.
    """

    def __init__(self, address: str) -> None:
        if find_spec("aiohttp") is None or find_spec("requests") is None:
            raise UserError(
                "Ray is installed without its job server", where="fleet", fix="pip install 'proctor[fleet]'"
            )
        self._address = address.rstrip("/")
        self._made: Any = None
        self._limited = Limited("proctor-fleet-cluster")

    def look(self) -> Sighting:
        """See `Cluster.look`."""
        return self._asked(self._look)

    def submit(self, order: Order) -> None:
        """See `Cluster.submit`."""
        self._asked(
            lambda: self._client().submit_job(
                entrypoint=order.entrypoint,
                submission_id=order.submission,
                entrypoint_resources=dict(order.tickets) or None,
            )
        )

    def stop(self, submission: str) -> None:
        """See `Cluster.stop`."""
        try:
            self._asked(lambda: self._client().stop_job(submission))
        except RefusedError:
            return  # it does not know the job (any more)

    def _look(self) -> Sighting:
        client = self._client()
        jobs = {job.submission: job for details in client.list_jobs() if (job := _job(details)) is not None}
        nodes = self._get("/api/v0/nodes?detail=true&limit=10000")["data"]["result"]["result"]
        alive = [node["resources_total"] for node in nodes if node["state"] == "ALIVE"]
        if not alive:
            raise UnreachableError("it has no nodes (yet)")
        report = self._get("/api/cluster_status")["data"]["clusterStatus"]["loadMetricsReport"]
        used = (report.get("usage") or {}).get("GPU", (0.0, 0.0))[0]
        totals = (sum(node.get(name, 0.0) for node in alive) for name in ("GPU", "CPU"))
        gpus, cpus = totals
        return Sighting(jobs, gpus, float(used), cpus)

    def _get(self, path: str) -> Any:
        reply = self._client()._do_request("GET", path)
        reply.raise_for_status()
        return reply.json()

    def _client(self) -> Any:
        if self._made is None:
            self._made = _client_class()(self._address)
        return self._made

    def _asked(self, ask: Callable[[], _T]) -> _T:
        """Sorts out what Ray's client raises.

        Raises:
            UnreachableError, TwiceError, RefusedError: see there.
        """
        try:
            return self._limited.call(ask, _CALL_SECONDS)
        except RuntimeError as error:
            text = str(error)
            if _TWICE in text:
                raise TwiceError(line_of(text)) from error
            if _is_refusal(text):
                raise RefusedError(line_of(text.strip().rstrip(".").splitlines()[-1])) from error
            raise UnreachableError(f"{self._address}: {told(error)}") from error
        except (UnreachableError, UserError):
            raise
        except Exception as error:  # whatever it may be that answers there: pages of a gateway, halves of a reply
            self._made = None
            raise UnreachableError(f"{self._address}: {_why(error)}") from error


def _why(error: Exception) -> str:
    """What went wrong, in a line."""
    from ray.exceptions import AuthenticationError

    if isinstance(error, AuthenticationError):  # Ray explains over many lines, and knows the way only half
        return f"{line_of(str(error).splitlines()[0])} ({LET_IN})"
    return told(_root(error))


def _root(error: BaseException) -> BaseException:
    """What the system said, where the client wraps it in several exceptions of its own; else the exception itself."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError) and inner.errno is not None:
            return inner
        inner = inner.__cause__ or inner.__context__
    return error


def _is_refusal(text: str) -> bool:
    """Whether the job server has looked at a request and turned it down: it then says 4xx, or 500 with a traceback of
    its own. A bare 500 is a server that is just ending, and other 5xx come from what stands before it."""
    found = _STATUS.search(text)
    return found is not None and (found[1].startswith("4") or (found[1] == "500" and "Traceback" in text))


def _client_class() -> type[Any]:
    """Ray's own client with a limit on each request (it has none), and without a look at ``RAY_ADDRESS``, which would
    send a fleet's jobs to another cluster than the one its spec names."""
    import ray
    from ray.dashboard.modules.dashboard_sdk import SubmissionClient
    from ray.job_submission import JobSubmissionClient

    class _Client(JobSubmissionClient):
        def __init__(self, address: str) -> None:
            self._client_ray_version = ray.__version__
            SubmissionClient.__init__(self, address=address)

        def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:
            return super()._do_request(method, endpoint, timeout=(_CONNECT_SECONDS, _READ_SECONDS), **options)

    return _Client


def _job(details: Any) -> Job | None:
    """What Ray tells of a job; None for a driver that nobody submitted."""
    if details.submission_id is None:
        return None
    state = JobState(str(getattr(details.status, "value", details.status)))
    return Job(details.submission_id, state, details.error_type in _NEVER_STARTED, line_of(details.message or ""))
