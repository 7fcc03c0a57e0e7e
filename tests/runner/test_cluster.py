from __future__ import annotations

import pytest

from proctor.runner.cluster import engines_that_fit
from tests.runner.helpers import MakeSpec

TWO = {"CPU": 2.0}


@pytest.mark.parametrize(
    ("engine", "nodes", "fit"),
    [
        ({"replicas": 2, "cpus_per_replica": 0.9}, [TWO, TWO], 3),
        ({"replicas": 2, "cpus_per_replica": 0.9}, [TWO], 1),
        ({"replicas": 2, "cpus_per_replica": 0.75}, [TWO], 2),
        ({"replicas": 2, "cpus_per_replica": 2}, [TWO, {"CPU": 1.0}], 1),
        ({"replicas": 2, "cpus_per_replica": 2}, [TWO], 0),
        ({"replicas": 8, "gpus_per_replica": 1}, [{"CPU": 16.0, "GPU": 4.0}, {"CPU": 16.0}], 4),
        ({"replicas": 8, "gpus_per_replica": 0.5}, [{"CPU": 16.0, "GPU": 4.0}], 8),
        ({"replicas": 1}, [], 0),
    ],
)
def test_engines_get_what_leaves_room_for_a_reader(
    make_spec: MakeSpec, engine: dict[str, float], nodes: list[dict[str, float]], fit: int
) -> None:
    assert engines_that_fit(make_spec(engine={"cpus_per_replica": 1.0, **engine}), nodes) == fit
