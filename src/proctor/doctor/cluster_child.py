"""Connects to a Ray cluster and prints what its nodes have, in a process that can be ended when Ray hangs.

Takes ``{"address": ..., "seconds": ..., "spec": ...}`` on stdin and prints a JSON list of findings as its last line.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import ray

from proctor.capacity.refusal import REFUSALS, refusal
from proctor.doctor.agreement import disagreements
from proctor.doctor.findings import Finding
from proctor.doctor.nodes import ask_nodes
from proctor.doctor.versions import facts_here
from proctor.spec import RunSpec, build_spec


def main() -> None:
    """Reads the order, asks, prints."""
    order: dict[str, Any] = json.load(sys.stdin)
    spec = None if order["spec"] is None else build_spec(order["spec"])
    findings = list(_findings(order["address"], spec, order["seconds"]))
    sys.stdout.write(json.dumps([asdict(finding) for finding in findings]) + "\n")
    sys.stdout.flush()
    os._exit(0)  # Ray's own end may take longer than anybody waits


def _findings(address: str, spec: RunSpec | None, seconds: float) -> Iterator[Finding]:
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except REFUSALS as error:
        told = refusal(error, address)
        yield Finding("ray", "cluster", "missing", told.what, told.fix or "is it up? `ray status`")
        return
    resources = ray.cluster_resources()
    found = ask_nodes(spec, 0.8 * seconds)
    what = f"{len(found)} node(s), {resources.get('CPU', 0):g} CPUs, {resources.get('GPU', 0):g} GPUs"
    yield Finding("ray", "cluster", "ok", what)
    wrong = disagreements(spec, facts_here(spec), found)
    for one in wrong:
        yield Finding("ray", one.where or "node", "missing", one.what, one.fix or "")
    if not wrong:
        yield Finding("ray", "nodes", "ok", "all have the versions that are here")


if __name__ == "__main__":
    main()
