"""The planner: what a run takes of its nodes, whether that fits, and how fast it can be, before anything is started.

cluster, described, machine, accelerators   the nodes there are
sample, probe, memory, rowcost              what rows cost, measured in a clean process
model, weights, engines, gpu                what models and engines take
arithmetic, placement, checks, evaluate     what fits where
cures                                       what would
throughput, overhead                        how fast, and which stage limits it
planning                                    all of it: `plan`
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor._lazy import lazy

if TYPE_CHECKING:
    from proctor.capacity.cluster import Cluster, Node, cluster_of, from_ray, this_machine
    from proctor.capacity.described import load_cluster
    from proctor.capacity.planning import Plan, plan

_HOMES = {
    "Cluster": "cluster",
    "Node": "cluster",
    "Plan": "planning",
    "cluster_of": "cluster",
    "from_ray": "cluster",
    "load_cluster": "described",
    "plan": "planning",
    "this_machine": "cluster",
}

__all__ = ["Cluster", "Node", "Plan", "cluster_of", "from_ray", "load_cluster", "plan", "this_machine"]

__getattr__, __dir__ = lazy(__name__, _HOMES)
