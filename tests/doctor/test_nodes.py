from __future__ import annotations

import platform
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import ray
from msgspec.structs import replace
from ray import cloudpickle

import proctor
from proctor.doctor import nodes
from proctor.doctor.agreement import NodeFacts
from proctor.doctor.clusters import look_at_cluster
from proctor.doctor.facts import Versions
from proctor.rows import UserError
from proctor.runner.cluster import cluster
from tests.doctor.test_versions import spec, told

pytestmark = pytest.mark.ray


def test_every_node_of_a_cluster_is_asked_before_anything_runs(
    local_ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho \'{"python": "3.12.1", "packages": {"vllm": "\'$VERSION\'"}}\'\n')
    python.chmod(0o755)
    engine = {"kind": "vllm", "python": str(python), "checkpoints": ["/m/one"], "env": {"VERSION": "0.32.0"}}
    run = spec(engine, ray={"address": "auto"}, requires={"ray": ">=2.60"})

    (found,) = nodes.check_nodes(run)
    assert found.facts is not None
    assert found.facts.own.python == sys.version.split()[0]
    assert found.facts.own.packages["proctor"] == proctor.__version__
    assert found.facts.engine == Versions("3.12.1", {"vllm": "0.32.0"})
    assert found.engines
    with cluster(run) as resources:
        assert resources["CPU"] == 4
    monkeypatch.setattr(nodes, "_asked", set())
    assert nodes.newcomers(run) == []
    assert len(nodes._asked) == 1, "it was asked, as if it had just joined"

    here = nodes.facts_here(run)
    newer = replace(here, engine=Versions("3.12.1", {"vllm": "0.33.0"}))
    monkeypatch.setattr(nodes, "facts_here", lambda _spec: newer)
    with pytest.raises(UserError, match=r"vllm is 0\.32\.0 there and 0\.33\.0 on the driver"), cluster(run):
        pytest.fail("it was let in")
    with cluster(run.model_copy(update={"ray": spec().ray})):
        pass  # a Ray of the run's own is this machine

    monkeypatch.setattr(nodes, "facts_here", lambda _spec: here)
    monkeypatch.setattr(nodes, "_NOTICE_SECONDS", 0.0)
    answers = [[NodeFacts("gone", False, None, "it died")], [found]]
    with monkeypatch.context() as patched:
        patched.setattr(nodes, "ask_nodes", lambda _spec, _seconds: answers.pop(0))
        assert nodes.check_nodes(run) == [found], "a node that has gone meanwhile is not missed"
    silent = nodes.ask_nodes(run, seconds=0.0)
    assert "does not say what it has: no answer within 0 s" in told(run, here, *silent)[0]


def test_the_doctor_asks_the_nodes_of_a_cluster(local_ray: None) -> None:
    address = ray.get_runtime_context().gcs_address
    found = {one.name: one for one in look_at_cluster(address, spec(requires={"ray": ">=99"}), 90)}
    assert found["cluster"].what.startswith("1 node(s), 4 CPUs")
    assert found["nodes"].level == "ok", "what is missing here, too, is told once"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        (none,) = look_at_cluster(f"127.0.0.1:{silent.getsockname()[1]}", None, 3)
    assert none.level == "missing"


OTHER_RAY = """
import sys
import ray
from ray import cloudpickle
ray.__version__ = "2.0.0"
from proctor.rows import UserError
from proctor.capacity.cluster import running_cluster
try:
    running_cluster(sys.argv[1])
except UserError as error:
    print(error)
"""


def test_a_cluster_of_another_ray_is_a_mistake_with_both_versions(local_ray: None) -> None:
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-c", OTHER_RAY, address]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    said = f"the cluster has Ray {ray.__version__} and Python {platform.python_version()}, this process Ray 2.0.0"
    assert said in done.stdout, done.stderr
    assert f"pip install 'ray=={ray.__version__}'" in done.stdout


def test_a_node_without_proctor_can_be_asked_all_the_same() -> None:
    with nodes._by_value():
        sent = cloudpickle.dumps(nodes.facts.look)
    alone = (
        "import sys; sys.modules['proctor'] = None; from ray import cloudpickle;"
        "look = cloudpickle.loads(bytes.fromhex(sys.argv[1])); print(look(['ray', 'no-such'])['own'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", alone, sent.hex()], capture_output=True, text=True, check=False, timeout=100
    )
    own = {"python": platform.python_version(), "packages": {"ray": ray.__version__}}
    assert done.stdout.strip() == str(own), done.stderr
