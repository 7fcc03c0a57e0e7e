"""A Ray head and a second node on this machine, to be ended and started again."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from proctor.fleet.jobs import RayJobs, UnreachableError

GPUS = 24
BIN = Path(sys.executable).parent
ENVIRONMENT = {
    **os.environ,
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_kill_child_processes_on_worker_exit": "false",
}


class Nodes:
    """A head and a second node, each of which can be ended and started again.

    Args:
        place: an empty directory with a short path: Ray puts sockets there.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._ports = dict(zip(("gcs", "dashboard", "client", "agent", "agent2"), free_ports(5), strict=True))
        self._log = (place / "nodes.log").open("ab")
        self._started: list[subprocess.Popen[bytes]] = []
        self.address = f"http://127.0.0.1:{self._ports['dashboard']}"

    def start_head(self) -> None:
        """Starts the head and waits until it takes jobs."""
        shutil.rmtree(self._place / "head", ignore_errors=True)
        self._start(
            *("--head", f"--port={self._ports['gcs']}", "--include-dashboard=true", "--dashboard-host=127.0.0.1"),
            *(f"--dashboard-port={self._ports['dashboard']}", f"--ray-client-server-port={self._ports['client']}"),
            *(f"--dashboard-agent-listen-port={self._ports['agent']}", f"--temp-dir={self._place / 'head'}"),
        )
        wait_for(self._ready, "the head takes jobs", 180)

    def start_second(self) -> None:
        """Starts the second node and waits until the head knows it."""
        self.second = self._start(
            f"--address=127.0.0.1:{self._ports['gcs']}", f"--dashboard-agent-listen-port={self._ports['agent2']}"
        )
        wait_for(lambda: self._ready(GPUS), "the second node is there", 180)

    def end_second(self) -> None:
        """Ends the second node at once."""
        end_tree(self.second.pid)
        self.second.wait()

    def end(self) -> None:
        """Ends every process of this cluster, at once: those it started, and those that name its directory."""
        mine = str(self._place)
        for process in psutil.process_iter(["pid", "cmdline"]):
            line = process.info["cmdline"] or []
            if process.pid != os.getpid() and any(mine in word for word in line) and "ray" in " ".join(line):
                end_tree(process.pid)
        for started in self._started:
            end_tree(started.pid)
            started.wait()
        self._started.clear()

    def close(self) -> None:
        """Ends everything for good."""
        self.end()
        self._log.close()

    def _ready(self, gpus: float = 0.0) -> bool:
        with contextlib.suppress(UnreachableError):
            return RayJobs(self.address).look().gpus >= gpus
        return False

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        common = ["--block", "--num-cpus=8", f"--num-gpus={GPUS // 2}", "--object-store-memory=100000000"]
        ports = ["--min-worker-port=0", "--max-worker-port=0", "--disable-usage-stats"]
        command = [str(BIN / "ray"), "start", *common, *ports, *words]
        process = subprocess.Popen(
            command, stdout=self._log, stderr=self._log, env=ENVIRONMENT, cwd=self._place, start_new_session=True
        )
        self._started.append(process)
        return process


def end_tree(pid: int) -> None:
    """Kills a process and all that it started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in [*root.children(recursive=True), root]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def wait_for(holds: Callable[[], Any], what: str, seconds: float) -> None:
    """Waits until `holds`."""
    give_up = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > give_up:
            raise TimeoutError(f"not in {seconds:g} s: {what}")
        time.sleep(0.5)
