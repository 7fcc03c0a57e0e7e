"""What is said of an audit: its design before it runs, and what it found."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from proctor.audit.conduct import Audit, Preparation, Shown
from proctor.audit.model import Arm, Comparison, Rate, Threshold
from proctor.audit.places import place_for
from proctor.audit.store import read_audit
from proctor.audit.thresholds import lengths_told
from proctor.cli.audit_replay_text import show_replay_plan, show_replays
from proctor.cli.output import counted, duration, escaped, stdout, table
from proctor.rows import UserError
from proctor.spec import RunSpec

_COLOURS = {"no effect found": "green", "could not tell": "yellow", "run-to-run": "red", "too identical": "red"}
_NARROW = 118
"""Columns of a terminal below which intervals are left to the page."""


class Earlier(NamedTuple):
    """How long an audit that lies at the same place took."""

    seconds: float
    sittings: int


def earlier(spec: RunSpec, out: str | None) -> Earlier | None:
    """The audit at the place where the next one would go; None if there is none that can be read."""
    try:
        found = read_audit(place_for(spec, None) if out is None else Path(out))
    except UserError:
        return None
    return Earlier(found.seconds, sum(shown.rounds for shown in found.arms))


def design_json(preparation: Preparation, before: Earlier | None) -> dict[str, Any]:
    """The design and its cost as plain data."""
    data: dict[str, Any] = msgspec.to_builtins(preparation)
    return {**data, "earlier": None if before is None else before._asdict()}


def audit_json(audit: Audit) -> dict[str, Any]:
    """What was found as plain data, without the arms' figures, which ``audit.json`` has."""
    data: dict[str, Any] = msgspec.to_builtins(audit)
    kept = ("checkpoint", "made_at", "verdict", "effects", "remedies", "replay", "troubles", "fingerprint", "seconds")
    return {"exit_code": audit.exit_code, **{name: data[name] for name in kept}}


def show_design(preparation: Preparation, before: Earlier | None) -> None:
    """Arms, knobs, what is left out, and what it takes."""
    design, cost = preparation.design, preparation.cost
    stdout.say(
        f"audit of {preparation.checkpoint}: {counted(len(design.rows), 'row')}, {counted(len(design.arms), 'arm')}, "
        f"{len({sitting.round for sitting in design.sittings})} rounds",
        style="bold",
    )
    stdout.print(
        table(["arm", "compared with", "layer"], [(arm.name, _reference(arm), arm.layer) for arm in design.arms])
    )
    knobs = [
        (knob.name, knob.place, ", ".join(map(_shown, knob.values)) or "-", _shown(knob.baseline), knob.what)
        for knob in design.knobs
    ]
    stdout.print(table(["knob", "where", "turned to", "baseline", "what it is"], knobs))
    _show_untried(design.untried)
    stdout.say(
        f"takes: {counted(cost.engine_starts, 'engine start')}, {counted(cost.sittings, 'sitting')}, "
        f"{counted(cost.requests, 'request')}, at most {cost.most_tokens:,} tokens"
    )
    stdout.say(f"the search for causes and thresholds may add {counted(cost.most_more_sittings, 'sitting')} at most")
    show_replay_plan(preparation)
    if before is not None and before.sittings:
        estimate = before.seconds / before.sittings * cost.sittings
        stdout.say(
            f"an earlier audit here took {duration(before.seconds)} for {counted(before.sittings, 'sitting')}: at that "
            f"rate this design takes {duration(estimate)}, without the search"
        )


def show_audit(audit: Audit) -> None:
    """The verdict first, then what it rests on, and what was not tried."""
    verdict = audit.verdict
    stdout.print(f"[bold {_COLOURS.get(verdict.kind, 'yellow')}]{escaped(verdict.sentence)}[/]\n")
    _show_effects(audit)
    _show_matrix(audit)
    show_replays(audit)
    if audit.remedies:
        rows = [
            (r.setting, r.effect, r.result, "-" if r.throughput is None else f"x {r.throughput:.2f}")
            for r in audit.remedies
        ]
        stdout.print(table(["remedy", "effect", "result", "throughput, measured here"], rows))
    for title, lines in (("evidence", verdict.evidence), ("turned without effect", verdict.ruled_out)):
        if lines:
            stdout.say(title, style="bold")
            for line in lines:
                stdout.say(f"  {line}")
    _show_untried(verdict.untried)
    for trouble in audit.troubles:
        stdout.say(trouble, style="red")
    if audit.disturbed:
        stdout.say(
            f"{counted(audit.disturbed, 'answer')} not counted: an engine died while it had the row", style="red"
        )


def _show_effects(audit: Audit) -> None:
    rows = [
        (
            " with ".join(effect.causes),
            effect.arm,
            "; ".join(map(_span, effect.thresholds)) or "-",
            ", ".join(effect.switches) or "-",
            ", ".join(effect.dampers) or "-",
            "every round" if effect.steady else "some rounds",
        )
        for effect in audit.effects
    ]
    if rows:
        stdout.print(table(["cause", "seen in", "begins", "ended by", "made rarer by", "shows in"], rows))
    for found in audit.verdict.thresholds:
        if not audit.effects:
            stdout.say(f"begins with {_span(found)}")
        if found.known_as:
            stdout.say(f"{found.knob} at {found.above} fits: {found.known_as}")


def _show_matrix(audit: Audit) -> None:
    planned = {arm.name for arm in audit.design.arms}
    narrow = stdout.width < _NARROW
    seen = [shown for shown in audit.arms if shown.comparison or shown.repeats.rows]
    arms = [shown for shown in seen if shown.arm.name in planned]
    columns = ["arm", "against", "itself", "log-probs equal", "tokens", "texts", "read alike", "shift"]
    title = "share that is equal" if narrow else "share that is equal, with 95 % intervals"
    stdout.print(table(columns, [_matrix_row(shown, narrow=narrow) for shown in arms], title=title))
    added = len(seen) - len(arms)
    if added:
        stdout.say(f"and {counted(added, 'further arm')} of the search, in the page")


def _matrix_row(shown: Shown, *, narrow: bool) -> list[str]:
    found = shown.comparison
    itself = "-" if not shown.repeats.rows else "differs" if shown.repeats.differs else "agrees"
    if found is None:
        return [shown.arm.name, "-", itself, *["-"] * 5]
    rates = (found.logprob_equal, found.token_equal, found.text_equal, found.parsed_equal)
    shares = [_share(rate, narrow=narrow) for rate in rates]
    return [shown.arm.name, shown.arm.against, itself, *shares, _shift(found)]


def _share(rate: Rate | None, *, narrow: bool) -> str:
    if rate is None or not rate.of:
        return "-"
    share = 100 * rate.hits / rate.of
    text = f"{share:.1f}" if 0.05 <= share <= 99.95 or share in (0.0, 100.0) else f"{share:.3g}"
    return f"{text} %" if narrow else f"{text} % ({100 * rate.low:.0f} to {100 * rate.high:.0f})"


def _shift(found: Comparison) -> str:
    return f"{found.shift[-1]:.2g}" if found.shift else "-"


def _span(found: Threshold) -> str:
    return f"{found.knob} from {found.above} on, not up to {found.below}{lengths_told(found)}"


def _show_untried(untried: tuple[tuple[str, str], ...]) -> None:
    if untried:
        stdout.print(table(["not tried", "why"], list(untried)))


def _reference(arm: Arm) -> str:
    return arm.against if arm.against not in ("", arm.name) else "-"


def _shown(value: object) -> str:
    return (
        {True: "on", False: "off", None: "as it is"}[value] if value is None or isinstance(value, bool) else str(value)
    )
