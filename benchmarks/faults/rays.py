"""Ray clusters for cells, kept by a process of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.faults.processes import end_tree

HEAD_CPUS = 4
RAY_ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Workers are niced by 15 by default: on a busy machine they would starve, and deadlines would measure that.
    "RAY_worker_niceness": "3",
}


KEEPER = """
import json, sys, warnings
warnings.simplefilter("ignore")
from ray.cluster_utils import Cluster
temp, head_cpus = sys.argv[1], int(sys.argv[2])
common = {"include_dashboard": False}
cluster = Cluster(
    initialize_head=True,
    head_node_args={"num_cpus": head_cpus, "temp_dir": temp, "object_store_memory": 400_000_000, **common},
)
said = sys.stdout
print(json.dumps(cluster.address), flush=True)
nodes = {}
for line in sys.stdin:
    what, number = json.loads(line)
    if what == "add":
        node = cluster.add_node(num_cpus=number, object_store_memory=200_000_000)
        (raylet,) = node.all_processes["raylet"]
        nodes[raylet.process.pid] = node
        print(json.dumps(raylet.process.pid), flush=True)
    else:
        cluster.remove_node(nodes.pop(number), allow_graceful=False)
        print(json.dumps(None), flush=True)
cluster.shutdown()
"""


class Cluster:
    """A head and, for faults of nodes, workers beside it. A process of its own keeps them, and ends them at its end."""

    def __init__(self, temp: Path, head_cpus: int) -> None:
        self._log = (temp / "keeper.log").open("wb")
        self._keeper = subprocess.Popen(
            [sys.executable, "-c", KEEPER, str(temp), str(head_cpus)],
            env={**os.environ, **RAY_ENVIRONMENT},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        self.address: str = self._answer()
        self.workers: list[int] = []

    def add_worker(self, cpus: int) -> None:
        """Starts one more node; `workers` has the process id of its raylet, the parent of its workers."""
        self.workers.append(self._ask("add", cpus))

    def lose_worker(self, pid: int) -> None:
        """Ends a node as a power cut would."""
        self.workers.remove(pid)
        self._ask("kill", pid)

    def close(self) -> None:
        """Ends every node."""
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._keeper.wait(60)
        end_tree(self._keeper.pid)
        assert self._keeper.stdout is not None
        self._keeper.stdout.close()
        self._log.close()

    def _ask(self, what: str, number: int) -> Any:
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(json.dumps([what, number]).encode() + b"\n")
        self._keeper.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._keeper.stdout is not None
        line = self._keeper.stdout.readline()
        while line and not line.startswith((b'"', b"null")) and not line.strip().isdigit():
            line = self._keeper.stdout.readline()
        if not line:
            raise RuntimeError(f"the cluster does not start: {Path(self._log.name).read_text()[-2000:]}")
        return json.loads(line)


@contextmanager
def cluster(head_cpus: int = HEAD_CPUS, worker_cpus: tuple[int, ...] = ()) -> Iterator[Cluster]:
    """A Ray cluster for the duration of the block."""
    temp = Path(tempfile.mkdtemp(prefix="pf-", dir="/tmp"))  # short: Ray makes sockets below it
    made = Cluster(temp, head_cpus)
    try:
        for cpus in worker_cpus:
            made.add_worker(cpus)
        yield made
    finally:
        made.close()
        shutil.rmtree(temp, ignore_errors=True)


def job_environment(variables: dict[str, str]) -> dict[str, str]:
    """What makes a driver's workers on a shared cluster carry `variables`, as a submitted job's do."""
    return {"RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps({"runtime_env": {"env_vars": variables}})}
