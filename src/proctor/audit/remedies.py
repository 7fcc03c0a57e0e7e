"""What would end an effect, and what it costs here: throughput measured in the audit's own sittings, never quoted."""

from __future__ import annotations

import msgspec

from proctor.audit.design import name_of
from proctor.audit.lab import Lab
from proctor.audit.model import Arm
from proctor.audit.search import Effect, Found


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that was tried against an effect.

    Attributes:
        setting: e.g. ``VLLM_CPU_ATTN_SPLIT_KV=0``.
        effect: arm in which the effect shows.
        result: what it does to the effect.
        throughput: requests a second with the setting over those of the arm without it, in the same audit; None where
            the arms did not sit side by side. Below 1 is slower.
    """

    setting: str
    effect: str
    result: str
    throughput: float | None = None


def remedies_of(lab: Lab, found: Found) -> tuple[Remedy, ...]:
    """Every setting that was seen to end or dampen an effect, the cheapest first."""
    made = [remedy for effect in found.effects for remedy in _against(lab, effect)]
    made += [
        Remedy(setting=setting, effect=found.noise.loudest, result="ends the noise") for setting in found.noise.quieted
    ]
    return tuple(sorted(made, key=lambda remedy: -(remedy.throughput or 0)))


def _against(lab: Lab, effect: Effect) -> list[Remedy]:
    arm = lab.arms[effect.arm]
    made = [_remedy(lab, arm, setting, "ends it") for setting in effect.switches]
    made += [_remedy(lab, arm, setting, "makes it rarer, and leaves some") for setting in effect.dampers]
    if "batch" in effect.causes:
        rest = {name: value for name, value in arm.changes.items() if name != "batch"}
        made.append(_remedy_arm(lab, arm, lab.arms.get(name_of(rest)), "batch=1", "ends it"))
        below = next((at.below for at in effect.thresholds if at.knob == "batch"), 1)
        if below != 1:
            at = lab.arms.get(name_of({**arm.changes, "batch": below}))
            made.append(_remedy_arm(lab, arm, at, f"batch={below}", "ends it"))
    return made


def _remedy(lab: Lab, arm: Arm, setting: str, result: str) -> Remedy:
    turned = next((other for name, other in lab.arms.items() if name == f"{arm.name} x {setting}"), None)
    return _remedy_arm(lab, arm, turned, setting, result)


def _remedy_arm(lab: Lab, arm: Arm, turned: Arm | None, setting: str, result: str) -> Remedy:
    ratio = None if turned is None else _ratio(lab.rate(turned.name), lab.rate(arm.name))
    return Remedy(setting=setting, effect=arm.name, result=result, throughput=ratio)


def _ratio(rate: float | None, before: float | None) -> float | None:
    return rate / before if rate and before else None
