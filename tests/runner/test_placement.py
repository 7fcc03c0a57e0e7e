from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from proctor.runner.placement import bundles, engine_resources, engines_on
from proctor.spec import RunSpec, build_spec


def spec_of(replicas: int, per_node: int | None, memory_mb: int | None = None, gpus: float = 0.0) -> RunSpec:
    return build_spec(
        {
            "run_dir": "run",
            "source": {"kind": "jsonl", "path": "rows.jsonl"},
            "engine": {
                "kind": "scripted",
                "checkpoints": ["ck"],
                "replicas": replicas,
                "cpus_per_replica": 2.0,
                "gpus_per_replica": gpus,
            },
            "task": {"kind": "exact"},
            "capacity": {
                key: value
                for key, value in {"engines_per_node": per_node, "engine_memory_mb": memory_mb}.items()
                if value is not None
            },
        }
    )


def node(name: str, cpu: float, memory: float = 64e9, gpu: float = 0.0) -> dict[str, float]:
    return {"CPU": cpu, "GPU": gpu, "memory": memory, f"node:{name}": 1.0, "node:__internal_head__": 1.0}


def test_engines_go_to_the_nodes_in_turn_and_never_more_than_the_limit() -> None:
    spec = spec_of(5, 2)
    placed = bundles(spec, [node("a", 16), node("b", 16), node("c", 3)], 5)
    places = [next(name for name in bundle if name.startswith("node:")) for bundle in placed]
    assert places == ["node:a", "node:b", "node:c", "node:a", "node:b"]
    assert all(bundle["CPU"] == 2.0 for bundle in placed)
    assert all("node:__internal_head__" not in bundle for bundle in placed)


def test_memory_and_gpus_count_too() -> None:
    assert engine_resources(spec_of(1, None, 20_000, 0.5)) == {"CPU": 2.0, "GPU": 0.5, "memory": 20e9}
    assert engines_on(spec_of(8, None, 20_000), node("a", 16, memory=64e9)) == 3
    assert engines_on(spec_of(8, None, gpus=0.5), node("a", 16, gpu=1)) == 2
    assert engines_on(spec_of(8, None, gpus=1), node("a", 16)) == 0
    assert engines_on(spec_of(8, 1, gpus=0.5), node("a", 16, gpu=1)) == 1


@given(st.integers(1, 9), st.integers(1, 3), st.lists(st.floats(0, 20), min_size=1, max_size=5), st.integers(1, 9))
def test_no_node_gets_more_than_it_has(replicas: int, per_node: int, cpus: list[float], engines: int) -> None:
    spec = spec_of(replicas, per_node)
    nodes = [node(str(number), cpu) for number, cpu in enumerate(cpus)]
    placed = bundles(spec, nodes, engines)
    count = Counter(name for bundle in placed for name in bundle if name.startswith("node:"))
    for number, one in enumerate(nodes):
        assert count[f"node:{number}"] <= min(per_node, one["CPU"] / 2 + 1e-6)
    assert len(placed) == min(engines, sum(engines_on(spec, one) for one in nodes))
