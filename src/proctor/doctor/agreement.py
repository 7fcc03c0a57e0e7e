"""Whether every node of a cluster has what the driver has. Pure: who asks them is `proctor.doctor.nodes`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proctor.doctor.facts import Facts
from proctor.doctor.versions import interpreter, missed_by, shortcoming
from proctor.rows import UserError
from proctor.spec import RunSpec
from proctor.spec.requires import version_of

EVERYWHERE = ("python", "ray", "proctor", "pillow", "simplejpeg")
"""What has to be the same on every node: what carries the rows, and what makes pixels of their images."""
_ENGINES_OF = {"vllm": ("vllm", "transformers", "torch"), "transformers": ("transformers", "torch")}
"""What has to be the same wherever there are engines, by the engine's kind."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node said.

    Attributes:
        name: of the node, for people.
        engines: whether it has room for an engine.
        facts: what it has; None if it did not say.
        trouble: why not.
    """

    name: str
    engines: bool
    facts: Facts | None
    trouble: str = ""


def disagreements(spec: RunSpec | None, driver: Facts, nodes: Sequence[NodeFacts]) -> list[UserError]:
    """What keeps a run (None: any run) from these nodes: other versions than the driver's, or than `requires` asks for,
    or a node that says nothing. Each with both versions, the node, and the cure."""
    return [error for node in nodes for error in _of_node(spec, driver, node)]


def _of_node(spec: RunSpec | None, driver: Facts, node: NodeFacts) -> Iterator[UserError]:
    facts = node.facts
    if facts is None:
        yield UserError(
            f"this node does not say what it has: {node.trouble}",
            where=f"node {node.name}",
            fix="look at it with `ray status`, or take it out of the cluster",
        )
        return
    yield from _differences(EVERYWHERE, driver.own.all, facts.own.all, node.name, None)
    if spec is None:
        return
    if node.engines:
        yield from _of_engine(spec, driver, facts, node.name)
    names = None if node.engines else ("python", "ray", "proctor")
    python, _env = interpreter(spec)
    for missed in missed_by(spec, facts, names):
        if not missed_by(spec, driver, (missed.package,)):  # else the driver has been told already
            yield shortcoming(missed, f"on node {node.name}", python)


def _of_engine(spec: RunSpec, driver: Facts, facts: Facts, node: str) -> Iterator[UserError]:
    names, python = _ENGINES_OF.get(spec.engine.kind, ()), interpreter(spec)[0]
    if python is not None and facts.engine is None:
        yield UserError(
            f"{python} does not run on node {node}: {facts.trouble}",
            where="engine.python",
            fix="make the same environment there, under the same path",
        )
        return
    here, there = driver.of_engine(), facts.of_engine()
    names = ("python", *names) if python is not None else names
    yield from _differences(names, here.all, there.all, node, python)


def _differences(
    names: Sequence[str], here: dict[str, str], there: dict[str, str], node: str, python: str | None
) -> Iterator[UserError]:
    for name in names:
        mine, its = version_of(name, here), version_of(name, there)
        if mine != its:
            what = f"{name} is {its or 'not installed'} there and {mine or 'not installed'} on the driver"
            place = f"node {node}" if python is None else f"node {node}, {python}"
            yield UserError(what, where=place, fix=_cure(name, mine, node, python))


def _cure(name: str, mine: str | None, node: str, python: str | None) -> str:
    pip = "pip" if python is None else f"{python} -m pip"
    if name == "python":
        return f"start Ray on {node} with Python {mine}, or run the driver with that node's"
    if mine is None:
        return f"on {node}: {pip} uninstall {name}, or install it on the driver, too"
    return f"on {node}: {pip} install '{name}=={mine}'"
