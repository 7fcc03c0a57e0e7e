"""Ray clusters for cells, each node a child process that is ended by its own id."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.faults.processes import end_tree

HEAD_CPUS = 4
RAY_ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Workers are niced by 15 by default: on a busy machine they would starve, and deadlines would measure that.
    "RAY_worker_niceness": "3",
}


class Node:
    """One Ray node on this machine."""

    def __init__(self, *arguments: str, temp: Path) -> None:
        ray = Path(sys.executable).with_name("ray")
        env = {**os.environ, **RAY_ENVIRONMENT}
        self._log = (temp / f"node-{time.monotonic_ns()}.log").open("wb")
        command = [ray, "start", "--block", "--disable-usage-stats", *arguments]
        self._process = subprocess.Popen(command, env=env, stdout=self._log, stderr=self._log, start_new_session=True)

    @property
    def pid(self) -> int:
        """Its first process, the parent of all others."""
        return self._process.pid

    def kill(self) -> None:
        """Ends the node as a power cut would."""
        end_tree(self._process.pid)
        self._process.wait()
        self._log.close()


class Cluster:
    """A head and, for faults of nodes, workers beside it."""

    def __init__(self, temp: Path, head_cpus: int) -> None:
        self._temp, port = temp, free_port()
        self.address = f"127.0.0.1:{port}"
        # A directory of its own: other runs on this machine look into the default one for a Ray to connect to.
        self._head = Node(
            "--head",
            "--include-dashboard=false",
            f"--port={port}",
            "--node-ip-address=127.0.0.1",
            f"--num-cpus={head_cpus}",
            f"--temp-dir={temp}",
            f"--object-store-memory={400_000_000}",
            temp=temp,
        )
        self.workers: list[Node] = []
        wait_for_nodes(self.address, 1)

    def add_worker(self, cpus: int) -> None:
        """Starts one more node."""
        worker = Node(
            f"--address={self.address}", f"--num-cpus={cpus}", "--object-store-memory=200000000", temp=self._temp
        )
        self.workers.append(worker)

    def close(self) -> None:
        """Ends every node."""
        for node in [*self.workers, self._head]:
            node.kill()


@contextmanager
def cluster(head_cpus: int = HEAD_CPUS, worker_cpus: tuple[int, ...] = ()) -> Iterator[Cluster]:
    """A Ray cluster for the duration of the block."""
    temp = Path(tempfile.mkdtemp(prefix="pf-", dir="/tmp"))  # short: Ray makes sockets below it
    made = Cluster(temp, head_cpus)
    try:
        for cpus in worker_cpus:
            made.add_worker(cpus)
        if worker_cpus:
            wait_for_nodes(made.address, 1 + len(worker_cpus))
        yield made
    finally:
        made.close()
        shutil.rmtree(temp, ignore_errors=True)


def wait_for_nodes(address: str, count: int, seconds: float = 180.0) -> None:
    """Waits until `count` nodes are alive.

    Raises:
        TimeoutError: they are not, in time.
    """
    from ray._private.state import GlobalState
    from ray._raylet import GcsClientOptions

    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        if answers(address):
            state = GlobalState()
            state._initialize_global_state(
                GcsClientOptions.create(address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False)
            )
            alive = sum(node["Alive"] for node in state.node_table())
            state.disconnect()
            if alive >= count:
                return
        time.sleep(0.3)
    raise TimeoutError(f"no Ray of {count} nodes at {address} after {seconds:g} s")


def answers(address: str) -> bool:
    """Whether somebody listens there."""
    host, _, port = address.partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def job_environment(variables: dict[str, str]) -> dict[str, str]:
    """What makes a driver's workers on a shared cluster carry `variables`, as a submitted job's do."""
    return {"RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps({"runtime_env": {"env_vars": variables}})}
