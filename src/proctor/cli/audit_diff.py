"""What is said of two audits beside each other."""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.audit.diff import AuditDiff
from proctor.audit.model import Flip, Rate
from proctor.cli.output import counted, escaped, stdout, table

_COLOURS = {0: "green", 3: "yellow", 4: "red"}
_MOST_FLIPS = 10
_EXCERPT = 60


def diff_json(found: AuditDiff) -> dict[str, Any]:
    """The difference as plain data."""
    data: dict[str, Any] = msgspec.to_builtins(found)
    return data


def show_diff(found: AuditDiff) -> None:
    """The result first, then what changed, the answers, and the verdicts side by side."""
    stdout.print(f"[bold {_COLOURS[found.exit_code]}]{escaped(found.sentence)}[/]\n")
    stdout.say(f"asked: {found.questions}")
    if found.changes:
        changes = [(change.what, change.old or "-", change.new or "-") for change in found.changes]
        stdout.print(table(["fingerprint", "old", "new"], changes))
    else:
        stdout.say("the fingerprints are the same")
    _show_answers(found)
    if found.effects:
        stdout.print(table(["effect", "is"], list(found.effects)))
    if found.thresholds:
        rows = [(change.what, change.old, change.new) for change in found.thresholds]
        stdout.print(table(["begins", "old", "new"], rows))
    moved = [arm for arm in found.arms if arm.moved or (arm.old and arm.new and _equal(arm.old) != _equal(arm.new))]
    if moved:
        arms = [
            (a.arm, a.unit, _rate(a.old), _rate(a.new), "yes" if a.moved else "within the intervals") for a in moved
        ]
        stdout.print(table(["arm", "equal to its reference", "old", "new", "moved"], arms))
    for name, sentence in zip(("old", "new"), found.verdicts, strict=True):
        stdout.say(f"verdict of the {name} audit: {sentence}")


def _show_answers(found: AuditDiff) -> None:
    answers = found.answers
    rates = (
        ("log-probabilities", answers.logprob_equal),
        ("tokens of a row", answers.token_equal),
        ("texts", answers.text_equal),
        ("read alike by the task", answers.parsed_equal),
    )
    rows = [(name, _rate(rate)) for name, rate in rates if rate is not None and rate.of]
    stdout.print(table(["new baseline against the old one", "equal"], rows))
    for remark in answers.remarks:
        stdout.say(remark, style="yellow")
    flips = [
        (flip.row_id, flip.position, "-" if flip.margin is None else f"{flip.margin:.2g}", *_excerpts(flip))
        for flip in answers.flips[:_MOST_FLIPS]
    ]
    if flips:
        stdout.print(table(["row", "position", "margin", "old answer", "new answer"], flips))
        left = len(answers.flips) - len(flips)
        if left:
            stdout.say(f"and {counted(left, 'more row')} whose answers part")


def _excerpts(flip: Flip) -> tuple[str, str]:
    """Both answers, from shortly before they part; the old one first."""
    new, old = flip.texts
    pairs = enumerate(zip(new, old, strict=False))
    start = max(0, next((at for at, (a, b) in pairs if a != b), min(len(new), len(old))) - _EXCERPT // 3)
    return _excerpt(old, start), _excerpt(new, start)


def _excerpt(text: str, start: int) -> str:
    head, tail = "\u2026" if start else "", "\u2026" if len(text) > start + _EXCERPT else ""
    return f"{head}{text[start : start + _EXCERPT]}{tail}".replace("\n", " ")


def _equal(rate: Rate) -> bool:
    return rate.hits == rate.of


def _rate(rate: Rate | None) -> str:
    if rate is None or not rate.of:
        return "-"
    return f"{100 * rate.hits / rate.of:.1f} % ({100 * rate.low:.1f} to {100 * rate.high:.1f}) of {rate.of:,}"
