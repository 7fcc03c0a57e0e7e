"""Ray: whether it is installed, whether a cluster can be reached, and what its nodes have."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from proctor.doctor.findings import Finding
from proctor.rows import UserError
from proctor.spec import RunSpec

LET_IN = "export RAY_AUTH_MODE=token, with which Ray takes the token in RAY_AUTH_TOKEN or ~/.ray/auth_token"
"""What to do where a cluster asks for a token: Ray itself sends none to an address unless it is told to."""
_NOT_LET_IN = (401, 403)


def look_at_ray() -> Iterator[Finding]:
    """The Ray that is installed here."""
    yield Finding("ray", "ray", "ok", metadata.version("ray"))
    if find_spec("aiohttp") is None or find_spec("prometheus_client") is None:
        fix = f"pip install 'ray[default]=={metadata.version('ray')}'"
        yield Finding("ray", "jobs", "absent", "ray[default] is not installed; only fleets and dashboards need it", fix)
    if address := os.environ.get("RAY_ADDRESS"):
        yield Finding(
            "ray", "RAY_ADDRESS", "warning", f"is set to {address}; a run takes only ray.address", "unset RAY_ADDRESS"
        )


def look_at_cluster(address: str, spec: RunSpec | None, seconds: float) -> Iterator[Finding]:
    """Asks a cluster's dashboard (``http://...``), or connects and asks every node what it has."""
    if address.startswith(("http://", "https://")):
        yield from _dashboard(address, seconds)
        return
    order = {"address": address, "seconds": seconds, "spec": None if spec is None else spec.model_dump(mode="json")}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "proctor.doctor.cluster_child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            output, _ = process.communicate(json.dumps(order), timeout=seconds)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            what = f"{address} does not answer within {seconds:g} s"
            yield Finding("ray", "cluster", "missing", what, "is it up (`ray status`)? if it is, --seconds 60")
            return
    yield from _told(output)


def _told(output: str) -> Iterator[Finding]:
    lines = output.strip().splitlines()
    try:
        found: list[dict[str, Any]] = json.loads(lines[-1]) if lines else []
    except ValueError:
        found = []
    if not found:
        yield Finding("ray", "cluster", "missing", "Ray ended the process that asked", "look at `ray status`")
    for one in found:
        yield Finding(**one)


def ray_of_dashboard(address: str, seconds: float) -> str:
    """Which Ray a cluster has, by ``GET /api/version`` of its dashboard, which every cluster that takes jobs has.

    Raises:
        OSError, ValueError: nobody answers there, or not as Ray does.
        UserError: it asks for a token, and has none from here or another one.
    """
    request = urllib.request.Request(f"{address.rstrip('/')}/api/version", headers=_token())  # noqa: S310 (http only)
    try:
        with urllib.request.urlopen(request, timeout=seconds) as reply:  # noqa: S310 (http only)
            said = json.loads(reply.read(10_000))
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in _NOT_LET_IN:
            raise UserError("the cluster asks for a token", where=address, fix=LET_IN) from error
        raise
    except HTTPException as error:
        raise ValueError("what answers does not speak HTTP") from error
    version = said.get("ray_version") if isinstance(said, dict) else None
    if not isinstance(version, str):
        raise ValueError("what answers is no Ray")
    return version


def _token() -> dict[str, str]:
    """The header with the token that Ray itself would send."""
    if os.environ.get("RAY_AUTH_MODE") != "token":
        return {}
    from ray._private.authentication.http_token_authentication import get_auth_headers_if_auth_enabled

    return get_auth_headers_if_auth_enabled({})


def _dashboard(address: str, seconds: float) -> Iterator[Finding]:
    here = metadata.version("ray")
    try:
        there = ray_of_dashboard(address, seconds)
    except UserError as error:
        yield Finding("ray", "cluster", "missing", f"{address}: {error.what}", error.fix or "")
        return
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        fix = "start it with `ray start --head` and ray[default] installed, or give another address"
        yield Finding("ray", "cluster", "missing", f"no dashboard of Ray at {address}: {reason}", fix)
        return
    if there != here:
        what = f"the cluster has Ray {there}, here is Ray {here}"
        yield Finding("ray", "cluster", "missing", what, f"pip install 'ray=={there}'")
    else:
        yield Finding("ray", "cluster", "ok", f"{address}: Ray {there}; its nodes are asked by each run itself")
