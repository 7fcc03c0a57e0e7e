"""The nodes of a real, running Ray cluster."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

CODE = """
import json, warnings
warnings.simplefilter("ignore")
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
cluster.add_node(num_cpus=3, memory=4_000_000_000, object_store_memory=100_000_000)
from proctor.capacity.cluster import running_cluster
import ray
found = running_cluster(cluster.address)
print(json.dumps({
    "origin": found.origin,
    "nodes": [[node.cpus, node.count, node.ram, node.object_store, node.disk is not None] for node in found.nodes],
    "left": ray.is_initialized(),
}))
cluster.shutdown()
"""


@pytest.mark.ray
@pytest.mark.slow
def test_a_running_cluster_tells_its_nodes() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=110, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, done.stderr[-2000:]
    found = json.loads(lines[-1])
    assert (found["origin"], found["left"]) == ("a running Ray cluster", False)
    head, other = found["nodes"]
    assert (head[0], head[1]) == (2, 1)
    assert other == [3, 1, 4_100_000_000, 100_000_000, True]
