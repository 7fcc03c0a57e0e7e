"""From a spec to the whole design of an audit, written down and costed before anything runs."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from proctor.audit.model import BASELINE, REPEAT, Arm, Design, Layer, Sitting
from proctor.audit.traffic import STOP
from proctor.engines.knobs import Knob, Value
from proctor.rows import UserError
from proctor.spec.audit import AuditSpec

NOTHING_TO_TRY = "no other value to try here"
"""Why a knob was not turned that stands at its only value."""
_LAYERS: dict[str, Layer] = {"cache": "cache", "logprobs": "observer", "top": "observer"}


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What a design asks of an engine, before anything is searched for beyond it.

    Attributes:
        engine_starts: processes that load the model.
        sittings: an arm, once.
        requests: probes and their neighbours.
        most_tokens: tokens decoded if every answer is as long as it may be.
        most_more_sittings: that the search for causes and thresholds may add.
        most_replays: sittings with given tokens at most, runs of higher precision included.
    """

    engine_starts: int
    sittings: int
    requests: int
    most_tokens: int
    most_more_sittings: int
    most_replays: int = 0


def name_of(changes: dict[str, Value]) -> str:
    """The name of the arm with these knobs turned: ``batch=8 x prefix=256``."""
    return " x ".join(f"{name}={_shown(value)}" for name, value in changes.items()) or BASELINE


def make_design(spec: AuditSpec, knobs: Sequence[Knob], rows: Sequence[int]) -> Design:
    """One arm for every value of every wanted knob, compared with the arm that differs in nothing else.

    Args:
        spec: the audit's settings.
        knobs: of the traffic and of the engine.
        rows: ids of the probes.

    Raises:
        UserError: the spec names a knob that there is not.
    """
    wanted = _wanted(spec, knobs)
    found = [Arm(name=BASELINE, layer="repeat"), Arm(name=REPEAT, layer="repeat")]
    for knob in knobs:
        if knob.name in wanted:
            found += _arms(knob, knobs)
    arms = list({arm.name: arm for arm in found}.values())
    there = [knob for knob in knobs if knob.name != STOP or knob.values]
    untried = [(knob.name, "left out by audit.arms") for knob in there if knob.name not in wanted]
    untried += [(f"{knob.name}={value}" if value else knob.name, why) for knob in knobs for value, why in knob.untried]
    silent = [knob for knob in there if knob.name in wanted and not knob.values and not knob.untried]
    untried += [(knob.name, NOTHING_TO_TRY) for knob in silent]
    order = random.Random(spec.seed)  # noqa: S311 (nothing secret)
    sittings = [sitting for round_ in range(spec.rounds) for sitting in _round(arms, round_, order)]
    return Design(
        arms=tuple(arms),
        knobs=tuple(knobs),
        wanted=tuple(knob.name for knob in knobs if knob.name in wanted),
        rows=tuple(rows),
        sittings=tuple(sittings),
        untried=tuple(untried),
        seed=spec.seed,
    )


def engine_changes(arm: Arm, knobs: Sequence[Knob]) -> tuple[tuple[str, Value], ...]:
    """The knobs of an arm that its engine must be started with."""
    traffic = {knob.name for knob in knobs if knob.place == "traffic"}
    return tuple((name, value) for name, value in arm.changes.items() if name not in traffic)


def cost_of(design: Design, spec: AuditSpec, *, max_tokens: int, shared: bool) -> Cost:
    """What a design takes.

    Args:
        design: the design.
        spec: the audit's settings.
        max_tokens: most tokens of an answer.
        shared: sittings with the same engine share a process within a round; else each has its own.
    """
    arms = {arm.name: arm for arm in design.arms}
    engines = {(s.round, engine_changes(arms[s.arm], design.knobs)) for s in design.sittings}
    requests = sum(_requests(arms[sitting.arm], len(design.rows)) for sitting in design.sittings)
    return Cost(
        engine_starts=len(engines) if shared else len(design.sittings),
        sittings=len(design.sittings),
        requests=requests,
        most_tokens=requests * max_tokens,
        most_more_sittings=spec.most_sittings,
        most_replays=design.replay.sittings,
    )


def _wanted(spec: AuditSpec, knobs: Sequence[Knob]) -> set[str]:
    names = [knob.name for knob in knobs]
    for name in spec.arms:
        if name not in (REPEAT, *names):
            known = ", ".join((REPEAT, *names))
            raise UserError(f"there is no knob {name!r} at this engine", where="audit.arms", fix=f"there are: {known}")
    return set(spec.arms or names)


def _arms(knob: Knob, knobs: Sequence[Knob]) -> list[Arm]:
    """The arms of a knob, behind those that they are compared with."""
    crowd = max((int(value or 1) for other in knobs if other.name == "batch" for value in other.values), default=1)
    if knob.name == STOP:
        return []
    if knob.name == "prefix":
        return [arm for value in knob.values for arm in _in_company("prefix", value, crowd)]
    if knob.name in ("order", "neighbours"):  # what else is in a batch, or where, is no question of its size
        company: dict[str, Value] = {"batch": crowd}
        reference = Arm(name=name_of(company), changes=company, layer="traffic")
        turned = [{**company, knob.name: value} for value in knob.values]
        return [reference, *(_arm(changes, "traffic", reference.name) for changes in turned)] if turned else []
    layer = _LAYERS.get(knob.name, "traffic" if knob.place == "traffic" else "engine")
    return [_arm({knob.name: value}, "control" if knob.control else layer) for value in knob.values]


def _arm(changes: dict[str, Value], layer: Layer, against: str = BASELINE) -> Arm:
    return Arm(name=name_of(changes), changes=changes, against=against, layer=layer)


def _in_company(name: str, value: Value, crowd: int) -> list[Arm]:
    """A condition that changes the question itself: asked alone, which is the reference, and in company."""
    alone = _arm({name: value}, "traffic", "")
    if crowd == 1:
        return [alone]
    return [alone, _arm({name: value, "batch": crowd}, "traffic", alone.name)]


def _round(arms: Sequence[Arm], number: int, order: random.Random) -> list[Sitting]:
    """Every arm once, in an order of this round's own: drift then falls on all arms alike."""
    return [Sitting(arm.name, number) for arm in order.sample(list(arms), len(arms))]


def _requests(arm: Arm, rows: int) -> int:
    size = int(arm.changes.get("batch") or 1)
    alone = arm.changes.get("neighbours") in ("copies", "long")
    asked = rows * size if alone else -(-rows // size) * size
    return asked * (2 if arm.changes.get("cache") == "warm" else 1)


def _shown(value: Value) -> str:
    return (
        {True: "on", False: "off", None: "default"}.get(value, str(value))
        if isinstance(value, bool | None)
        else str(value)
    )
