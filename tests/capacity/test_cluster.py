"""What nodes have: by cgroup, as Ray tells, and as a file describes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proctor.capacity import machine
from proctor.capacity.cluster import HEAD_SERVICES, NODE_SERVICES, cluster_of, from_ray, this_machine
from proctor.capacity.described import load_cluster
from proctor.rows import UserError
from proctor.spec import build_spec

GB = 10**9
GIB = 1 << 30


def tree(root: Path, **files: str) -> Path:
    """A small file system; names with ``__`` for ``/``."""
    files = {"proc__meminfo": "MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable: 12582912 kB\n", **files}
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_memory_of_a_machine_without_limits(tmp_path: Path) -> None:
    root = tree(tmp_path)
    assert machine.memory_limit(root) == 16 * GIB
    assert machine.memory_used(root) == 4 * GIB


def test_memory_limit_of_cgroup_v1(tmp_path: Path) -> None:
    cgroup = "sys__fs__cgroup__memory__"
    root = tree(
        tmp_path,
        **{
            f"{cgroup}memory.limit_in_bytes": f"{8 * GIB}\n",
            f"{cgroup}memory.usage_in_bytes": f"{3 * GIB}\n",
            f"{cgroup}memory.stat": f"cache 1\ntotal_inactive_file {GIB}\n",
        },
    )
    assert machine.memory_limit(root) == 8 * GIB
    assert machine.memory_used(root) == 2 * GIB  # page cache that goes when it is needed is not counted


def test_no_limit_in_cgroup_v1_is_a_number_larger_than_the_machine(tmp_path: Path) -> None:
    root = tree(tmp_path, **{"sys__fs__cgroup__memory__memory.limit_in_bytes": "9223372036854771712"})
    assert machine.memory_limit(root) == 16 * GIB
    assert machine.memory_used(root) == 4 * GIB


@pytest.mark.parametrize(("text", "limit"), [(f"{6 * GIB}\n", 6 * GIB), ("max\n", 16 * GIB), (f"{99 * GIB}", 16 * GIB)])
def test_memory_limit_of_cgroup_v2(tmp_path: Path, text: str, limit: int) -> None:
    root = tree(tmp_path, **{"sys__fs__cgroup__memory.max": text, "sys__fs__cgroup__memory.current": f"{5 * GIB}"})
    assert machine.memory_limit(root) == limit
    assert machine.memory_used(root) == (5 * GIB if limit < 16 * GIB else 4 * GIB)


def test_cpus_of_a_quota_are_rounded_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert machine.cpu_count(tree(tmp_path / "plain")) == 8
    assert machine.cpu_count(tree(tmp_path / "max", **{"sys__fs__cgroup__cpu.max": "max 100000\n"})) == 8
    assert machine.cpu_count(tree(tmp_path / "some", **{"sys__fs__cgroup__cpu.max": "350000 100000\n"})) == 3
    assert machine.cpu_count(tree(tmp_path / "few", **{"sys__fs__cgroup__cpu.max": "50000 100000\n"})) == 1
    v1 = {"sys__fs__cgroup__cpu__cpu.cfs_quota_us": "200000", "sys__fs__cgroup__cpu__cpu.cfs_period_us": "100000"}
    assert machine.cpu_count(tree(tmp_path / "v1", **v1)) == 2


@pytest.mark.parametrize(
    ("available", "shm", "store"),
    [
        (100 * GB, None, 30 * GB),
        (100 * GB, 64 * GB, 30 * GB),
        (100 * GB, 20 * GB, 19 * GB),
        (100 * GB, GB, 10 * GB),  # Ray does not go lower, and writes to /tmp instead
        (20 * GB, GB, 6 * GB),
        (1000 * GB, 900 * GB, 200 * GB),
    ],
)
def test_the_object_store_that_ray_takes(available: int, shm: int | None, store: int) -> None:
    assert machine.default_object_store(available, shm) == store


def test_the_rule_is_rays_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private import utils

    monkeypatch.setattr(utils, "get_shared_memory_bytes", lambda: 20 * GB)
    for available in (GB, 63 * GB, 70 * GB, 5000 * GB):
        assert utils.resolve_object_store_memory(available) == machine.default_object_store(available, 20 * GB)


def test_what_nvidia_smi_prints() -> None:
    assert machine.read_smi("NVIDIA H200, 143771\nNVIDIA A100-SXM4-80GB, 81920\n[N/A]\n\n") == [
        ("NVIDIA H200", 143771 << 20),
        ("NVIDIA A100-SXM4-80GB", 81920 << 20),
    ]


def test_this_machine_as_it_is() -> None:
    import ray._common.utils

    (node,) = this_machine().nodes
    assert node.ram == ray._common.utils.get_system_memory()
    assert 0 < node.used < node.ram
    assert 0 < node.object_store <= 0.3 * node.ram
    assert node.cpus == node.cores
    assert node.disk
    told = this_machine(cpus=1, object_store=100_000_000).nodes[0]
    assert (told.cpus, told.object_store) == (1, 100_000_000)


def test_a_ray_of_the_runs_own_is_told_of_the_cpus_that_engines_need() -> None:
    spec = build_spec(
        {
            "run_dir": "r",
            "source": {"kind": "jsonl", "path": "x"},
            "engine": {"kind": "scripted", "checkpoints": ["c"], "replicas": 500},
            "task": {"kind": "exact"},
            "ray": {"object_store_mb": 90},
        }
    )
    (node,) = cluster_of(spec).nodes
    assert node.cpus >= 501
    assert node.real_cpus == node.cores
    assert node.real_cpus < 500
    assert node.object_store == 90_000_000


def ray_node(name: str, **parts: Any) -> dict[str, Any]:
    resources = {"CPU": 16.0, "memory": 100e9, "object_store_memory": 40e9, f"node:{name}": 1.0}
    node = {"NodeID": name, "NodeName": name, "Alive": True, "Labels": {}, "Resources": resources}
    return {**node, **{k: v for k, v in parts.items() if k != "Resources"}} | (
        {"Resources": {**resources, **parts["Resources"]}} if "Resources" in parts else {}
    )


def test_nodes_of_a_running_cluster() -> None:
    gpus = {"Resources": {"GPU": 8.0, "accelerator_type:H100": 1.0}}
    cluster = from_ray(
        [
            ray_node("g1", **gpus),
            ray_node("g2", Resources={**gpus["Resources"], "memory": 99.9e9}),
            ray_node("head", Resources={"node:__internal_head__": 1.0}),
            ray_node("dead", Alive=False),
        ]
    )
    head, group = cluster.nodes
    assert (head.name, head.count, head.gpus, head.gpu_memory, head.services) == ("head", 1, 0, None, HEAD_SERVICES)
    assert (group.name, group.count, group.gpus, group.services) == ("g1", 2, 8, NODE_SERVICES)
    assert (group.gpu_type, group.gpu_memory) == ("H100", 81_559 << 20)
    assert "modal" in group.sources["gpu_memory"]
    assert (group.ram, group.object_store) == (139_900_000_000, 40 * GB)
    assert cluster.total("cpus") == 48


def test_a_gpu_whose_name_does_not_say_its_memory_is_unknown() -> None:
    labels = {"ray.io/accelerator-type": "A100"}
    (node,) = from_ray([ray_node("a", Labels=labels, Resources={"GPU": 1.0})]).nodes
    assert (node.gpu_type, node.gpu_memory) == ("A100", None)
    assert "does not say" in node.sources["gpu_memory"]
    (node,) = from_ray([ray_node("a", Labels={"ray.io/accelerator-type": "A100-80G"}, Resources={"GPU": 1.0})]).nodes
    assert node.gpu_memory == 81_920 << 20


def test_a_described_cluster(tmp_path: Path) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text(
        "nodes:\n"
        "  - {name: head, cpus: 8, ram_gb: 64, object_store_gb: 5, used_gb: 2}\n"
        "  - {name: gpu, count: 6, cpus: 56, ram_gb: 512, gpus: 8, gpu_type: H100, shm_gb: 100, disk_gb: 1000}\n"
        "  - {name: old, cpus: 4, ram_gb: 32, gpus: 1, gpu_type: V100, gpu_memory_gb: 16}\n"
    )
    cluster = load_cluster(file)
    head, gpu, old = cluster.nodes
    assert (head.object_store, head.used, head.services) == (5 * GB, 2 * GB, HEAD_SERVICES)
    assert (gpu.count, gpu.object_store, gpu.gpu_memory) == (6, 95 * GB, 81_559 << 20)
    assert (gpu.disk, gpu.services) == (1000 * GB, NODE_SERVICES)
    assert old.gpu_memory == 16 * GB
    assert cluster.total("gpus") == 49
    assert cluster.origin == str(file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodes:\n  - {name: a, cpus: 8}\n", "nodes.yaml:2: nodes.0.ram_gb: required, but not there"),
        ("nodes:\n  - name: a\n    cpu: 8\n    ram_gb: 1\n", "nodes.yaml:3: nodes.0.cpu: unknown key 'cpu'"),
        ("nodes:\n  - {name: a, cpus: '8', ram_gb: 1}\n", "'8' is text, not a number"),
        ("nodes:\n  - {name: a, cpus: 8, ram_gb: 1, object_store_gb: 2}\n", "object_store_gb (2) leaves nothing"),
        ("nodes: []\n", "nodes: list should have at least 1 item"),
        ("- 1\n", "no description of a cluster"),
        ("nodes: [}\n", "not YAML"),
    ],
)
def test_a_mistake_in_the_description_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as error:
        load_cluster(file)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_no_description(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read the cluster: No such file"):
        load_cluster(tmp_path / "nothing.yaml")


def test_the_rule_of_the_object_store_is_told_with_its_floor(tmp_path: Path) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text("nodes: [{name: a, cpus: 4, ram_gb: 64, shm_gb: 0.064}]")
    (node,) = load_cluster(file).nodes
    assert node.object_store == 10 * GB
    assert node.sources["object_store"] == "min(0.3 x memory, 200 GB, 0.95 x /dev/shm or 10 GB if that is more)"
