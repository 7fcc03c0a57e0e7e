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
from proctor.spec import RunSpec


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
    """
    try:
        with urllib.request.urlopen(f"{address.rstrip('/')}/api/version", timeout=seconds) as reply:  # noqa: S310 (http only)
            said = json.loads(reply.read(10_000))
    except HTTPException as error:
        raise ValueError("what answers does not speak HTTP") from error
    version = said.get("ray_version") if isinstance(said, dict) else None
    if not isinstance(version, str):
        raise ValueError("what answers is no Ray")
    return version


def _dashboard(address: str, seconds: float) -> Iterator[Finding]:
    here = metadata.version("ray")
    try:
        there = ray_of_dashboard(address, seconds)
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
