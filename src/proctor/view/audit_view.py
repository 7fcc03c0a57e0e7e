"""Everything that the page of an audit shows, gathered before a line of HTML is written."""

from __future__ import annotations

from dataclasses import dataclass

from proctor.audit.conduct import Audit, Shown
from proctor.audit.diff import flat_fingerprint
from proctor.audit.model import REPEAT, Comparison, Rate, Threshold
from proctor.audit.search import Effect
from proctor.engines.inspection import Conflict, Switch
from proctor.engines.knobs import Value
from proctor.view.audit_flips import FlipView, flip_views
from proctor.view.audit_matrix import Matrix, matrix
from proctor.view.audit_replay import ReplayLine, replay_lines
from proctor.view.audit_words import Headline, headline
from proctor.view.charts import survival, threshold
from proctor.view.charts.survival import survival_chart
from proctor.view.charts.threshold import threshold_chart
from proctor.view.formats import duration, whole


@dataclass(frozen=True, slots=True)
class AuditView:
    """An audit as its page shows it.

    Attributes:
        facts: what was audited, as (label, value).
        effects: each with its arm's comparison.
        flips_left_out: how many more there are.
        dead: switches that the installed package does not have, or makes nothing of.
        fingerprint: as (name, value).
    """

    name: str
    headline: Headline
    audit: Audit
    facts: list[tuple[str, str]]
    effects: list[tuple[Effect, Comparison | None]]
    matrix: Matrix
    replays: list[ReplayLine]
    survival: survival.Chart | None
    thresholds: list[threshold.Chart]
    flips: list[FlipView]
    flips_left_out: int
    dead: list[Switch]
    conflicts: list[Conflict]
    fingerprint: list[tuple[str, str]]


def gather(audit: Audit, longest: int = 0) -> AuditView:
    """What the page shows.

    Args:
        audit: what was found.
        longest: tokens of the longest answer.
    """
    arms = {shown.arm.name: shown for shown in audit.arms}
    flips, left_out = flip_views(audit)
    switches = audit.inspection.switches if audit.inspection else ()
    return AuditView(
        name=f"{audit.checkpoint} on {audit.fingerprint.engine}",
        headline=headline(audit.verdict.kind, audit.verdict.sentence, audit.verdict.nature),
        audit=audit,
        facts=_facts(audit),
        effects=[(effect, arms[effect.arm].comparison if effect.arm in arms else None) for effect in audit.effects],
        matrix=matrix(audit),
        replays=replay_lines(audit),
        survival=_survival(audit, longest),
        thresholds=_thresholds(audit, arms),
        flips=flips,
        flips_left_out=left_out,
        dead=[switch for switch in switches if not switch.exists or switch.effect == "no effect"],
        conflicts=list(audit.inspection.conflicts if audit.inspection else ()),
        fingerprint=[(name, value) for name, value in flat_fingerprint(audit).items() if value],
    )


def _facts(audit: Audit) -> list[tuple[str, str]]:
    sittings = sum(shown.rounds for shown in audit.arms)
    return [
        ("Engine", audit.fingerprint.engine),
        ("Model", audit.fingerprint.model),
        ("Rows", whole(len(audit.design.rows))),
        ("Arms", whole(len(audit.arms))),
        ("Sittings", whole(sittings)),
        ("Took", duration(audit.seconds)),
        ("Made", audit.made_at),
    ]


def _survival(audit: Audit, longest: int) -> survival.Chart | None:
    """Effects first, then whatever else differs, then the controls; where nothing agrees with itself, that."""
    if audit.verdict.kind == "run-to-run":
        noisy = {shown.arm.name: shown.repeats for shown in audit.arms if shown.repeats.differs}
        return _chart(noisy, longest)
    guilty = [effect.arm for effect in audit.effects]
    differing = [shown for shown in audit.arms if shown.comparison is not None and shown.comparison.differs]
    planned = {arm.name for arm in audit.design.arms}

    def weight(shown: Shown) -> tuple[int, int]:
        name, control = shown.arm.name, shown.arm.layer == "control"
        if name in guilty:
            return 0, guilty.index(name)
        return (2 if control else 1) if name in planned else 3, 0

    ordered = sorted(differing, key=weight)
    return _chart({s.arm.name: s.comparison for s in ordered if s.comparison and weight(s)[0] < 3}, longest)


def _chart(arms: dict[str, Comparison], longest: int) -> survival.Chart | None:
    by_token = any(found.token_equal is not None and found.token_equal.of for found in arms.values())
    unit = "token" if by_token else "character"
    return survival_chart({name: found.survival for name, found in arms.items()}, longest if by_token else 0, unit)


def _thresholds(audit: Audit, arms: dict[str, Shown]) -> list[threshold.Chart]:
    charts = []
    for effect in audit.effects:
        for found in effect.thresholds:
            changes = arms[effect.arm].arm.changes if effect.arm in arms else {}
            others = {name: value for name, value in changes.items() if name != found.knob}
            charts.append(_threshold(found, others, audit, of_itself=False))
    if audit.verdict.kind == "run-to-run":
        charts += [_threshold(found, {}, audit, of_itself=True) for found in audit.verdict.thresholds]
    return [chart for chart in charts if chart is not None]


def _threshold(found: Threshold, others: dict[str, Value], audit: Audit, *, of_itself: bool) -> threshold.Chart | None:
    """The tried values of a knob, with everything else as in the arm in which the effect shows."""
    if not isinstance(found.below, int) or not isinstance(found.above, int):
        return None
    lines: dict[str, dict[int, Rate]] = {"log-probabilities": {}, "answers": {}}
    baseline = next((knob.baseline for knob in audit.design.knobs if knob.name == found.knob), None)
    for shown in audit.arms:
        compared = shown.repeats if of_itself else shown.comparison
        value = shown.arm.changes.get(found.knob)
        rest = {name: other for name, other in shown.arm.changes.items() if name != found.knob}
        if shown.arm.name == REPEAT and not others:
            value = baseline
        if compared is None or rest != others or not isinstance(value, int):
            continue
        for name, rate in (("log-probabilities", compared.logprob_equal), ("answers", compared.text_equal)):
            if rate is not None:
                lines[name][value] = rate
    return threshold_chart(found.knob, (found.below, found.above), lines)
