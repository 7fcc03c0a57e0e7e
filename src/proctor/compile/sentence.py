"""A verdict in one sentence."""

from __future__ import annotations

from proctor.compile.model import ANSWERS, ENCODER, Finding, Interval, Measured, Verdict
from proctor.compile.words import counted, listed, seconds, seconds_between


def sentence(measured: Measured, found: Verdict) -> str:
    """What to do and why; figures without an interval are told as such."""
    timed = [one for one in found.findings if one.saved is not None]
    if not timed:
        return "Nothing can be concluded: nothing was timed in both arms."
    if found.best:
        return f"Compile {_targets(found.best)}: {_kept(measured, found)}{_planned(measured, found)}."
    if all(one.saved is not None and one.saved.low is None for one in timed):
        return (
            "Nothing can be concluded: everything was seen in one process only, so its noise is not known. "
            f"By the bare values {_bare(found)}{_planned(measured, found)}."
        )
    open_ = [one for one in found.findings if one.decision == "inconclusive"]
    if open_:
        first = _foremost(measured, open_)
        rest = [one for one in open_ if one is not first]
        return f"Could not tell. {_named(first)}{_others(rest)}{_planned(measured, found)}."
    return f"Do not compile. {_losing(found)}."


def _targets(names: tuple[str, ...]) -> str:
    return listed(names)


def _kept(measured: Measured, found: Verdict) -> str:
    encoder = next((one for one in found.findings if one.target == ENCODER and one.eager), None)
    of = f" of the encoder's {seconds(encoder.eager.value)}" if encoder and encoder.eager else ""
    saves = next((one.saves for one in found.subsets if one.targets == found.best), Interval(found.best_saves))
    left = [name for name in measured.targets if name not in found.best]
    rest = f"; leave {listed(left)} as they are" if len(left) > 1 else f"; leave {left[0]} as it is" if left else ""
    return f"it saves {seconds_between(saves)}{of} a unit{rest}"


def _bare(found: Verdict) -> str:
    whole = next(
        (one for name in (ANSWERS, ENCODER) for one in found.findings if one.target == name and one.saved), None
    )
    parts = []
    if whole is not None and whole.saved is not None and whole.eager is not None:
        verb = "saves" if whole.saved.value >= 0 else "loses"
        what = "end to end" if whole.target == ANSWERS else "of the encoder"
        parts.append(
            f"compiling everything {verb} {seconds(abs(whole.saved.value))} of {seconds(whole.eager.value)} {what}"
        )
    if found.subsets and found.subsets[0].saves.value > 0:
        top = found.subsets[0]
        parts.append(f"most is saved with {listed(top.targets)} alone, {seconds(top.saves.value)} a unit")
    return " and ".join(parts) if parts else "no target saves anything"


def _planned(measured: Measured, found: Verdict) -> str:
    """What that means for the run that is planned, by cache."""
    if measured.rows is None or not found.net:
        return ""
    told = [
        f"{_gains(net)} with a {cache} cache{_sure(found.worth_it.get(cache), net)}" for cache, net in found.net.items()
    ]
    return f"; a run of {counted(measured.rows, 'row')} {listed(told)}"


def _gains(net: Interval) -> str:
    return f"{'gains' if net.value >= 0 else 'loses'} {seconds(abs(net.value))}"


def _sure(worth: bool | None, net: Interval) -> str:
    return " (which is not certain)" if worth is None and net.low is not None else ""


def _foremost(measured: Measured, findings: list[Finding]) -> Finding:
    """Of what is open, the target that may save most."""
    targets = [one for one in findings if one.target in measured.targets] or findings
    return max(targets, key=lambda one: (one.saved.high or one.saved.value) if one.saved else 0.0)


def _others(findings: list[Finding]) -> str:
    return f"; likewise open: {listed([one.target for one in findings])}" if findings else ""


def _losing(found: Verdict) -> str:
    whole = [one for one in found.findings if one.target in (ENCODER, ANSWERS) and one.decision == "skip"]
    first = whole[-1] if whole else found.findings[0]
    return _named(first)


def _named(one: Finding) -> str:
    name = {ANSWERS: "End to end", ENCODER: "The whole encoder"}.get(one.target, one.target)
    return f"{name}: {one.reason}"
