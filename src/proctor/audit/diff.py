"""Two stored audits beside each other: an upgrade of the engine, another GPU. What was asked must be the same.

Nothing is run. The old audit's baseline stands in for an arm that can no longer be asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from proctor.audit.compare import compare, suspicious
from proctor.audit.compare.flips import by_margin
from proctor.audit.conduct import Audit, Shown
from proctor.audit.model import BASELINE, REPEAT, Arm, Comparison, Fingerprint, Observation, Rate, Threshold
from proctor.audit.search import Effect
from proctor.audit.store import read_answers, read_audit, read_margins
from proctor.rows import UserError

OLD, NEW = "old", "new"


class Change(msgspec.Struct, frozen=True):
    """Something that is not what it was; empty where it is not there."""

    what: str
    old: str
    new: str


class ArmDiff(msgspec.Struct, frozen=True, kw_only=True):
    """One arm in both audits.

    Attributes:
        unit: what is counted: ``log-probabilities``, ``tokens`` or ``texts``.
        old, new: those that are equal to the reference of the same audit; None where it was not compared.
        moved: whether the two intervals do not touch.
    """

    arm: str
    unit: str
    old: Rate | None
    new: Rate | None
    moved: bool = False


class AuditDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What two audits have in common, and what not.

    Attributes:
        sentence: the result in one sentence.
        arm: the new baseline as an arm of the layer ``version`` against the old one.
        questions: which questions both asked, in words.
        changes: of the fingerprint.
        answers: the new baseline against the old one. Margins are those of the old audit.
        unsteady: audits (``old``, ``new``) whose baseline does not agree with itself: what differs may be that.
        verdicts: the sentence of the old audit, and that of the new one.
        effects: causes whose effect is in one audit only, with ``new``, ``gone``, or that the other did not try it.
        thresholds: those that are not where they were.
        arms: rates of the arms that are in both.
    """

    sentence: str
    arm: Arm
    questions: str
    changes: tuple[Change, ...]
    answers: Comparison
    unsteady: tuple[str, ...]
    verdicts: tuple[str, str]
    effects: tuple[tuple[str, str], ...]
    thresholds: tuple[Change, ...]
    arms: tuple[ArmDiff, ...]
    exit_code: int


def diff_audits(old: Path, new: Path) -> AuditDiff:
    """Compares two audits that lie in these directories (see `proctor.audit.store.read_audit`).

    Returns:
        The difference; its `exit_code` is 0 where answers, effects and thresholds are the same, 4 where they are not,
        and 3 where neither baseline agrees with itself, so that nothing can be told.

    Raises:
        UserError: one is no audit, or they have no question in common.
    """
    before, after = _read(old), _read(new)
    rows, questions = _shared(before, after, str(new))
    unsteady = tuple(name for name, audit in ((OLD, before), (NEW, after)) if _unsteady(audit))
    answers = _with_margins(_compared(old, new, rows, steady=not unsteady), old)
    effects = tuple(_effects(before, after))
    thresholds = tuple(_moved_thresholds(before, after))
    changes = tuple(_changes(before, after))
    code = _exit_code(answers, unsteady, effects, thresholds)
    return AuditDiff(
        sentence=_sentence(code, answers, unsteady, effects, thresholds),
        arm=Arm(name=NEW, against=OLD, layer="version", changes={change.what: change.new for change in changes}),
        questions=questions,
        changes=changes,
        answers=answers,
        unsteady=unsteady,
        verdicts=(before.verdict.sentence, after.verdict.sentence),
        effects=effects,
        thresholds=thresholds,
        arms=tuple(_arms(before, after)),
        exit_code=code,
    )


def _read(folder: Path) -> Audit:
    audit = read_audit(folder)
    if not any(shown.arm.name == BASELINE for shown in audit.arms):
        raise UserError("not comparable: no baseline in this audit", where=str(folder))
    return audit


def _shared(before: Audit, after: Audit, where: str) -> tuple[set[int], str]:
    """Rows that both asked the same of, and how that stands, in words."""
    ours, theirs = after.fingerprint.questions, before.fingerprint.questions
    rows = {int(row) for row, digest in ours.items() if theirs.get(row) == digest}
    if not rows:
        what = "rows of the same ids, asked otherwise" if ours.keys() & theirs.keys() else "no row in common"
        fix = "audit the same source, prompt, images and sampling with the same audit.sample"
        raise UserError(f"not comparable: the two audits have {what}", where=where, fix=fix)
    if len(rows) == len(ours) == len(theirs):
        return rows, f"the same {len(rows)} questions"
    changed = len(ours.keys() & theirs.keys()) - len(rows)
    told = f"{len(rows)} questions in common, of {len(theirs)} in the old audit and {len(ours)} in the new one"
    return rows, f"{told}; {changed} rows were asked otherwise" if changed else told


def _compared(old: Path, new: Path, rows: set[int], *, steady: bool) -> Comparison:
    theirs, ours = _baseline(old, rows), _baseline(new, rows)
    both = {found.round for found in theirs} & {found.round for found in ours}
    if both:  # engines that agree with themselves give the same in every round: one of them says it all
        chosen = {min(both)} if steady else both
        theirs, ours = ([found for found in side if found.round in chosen] for side in (theirs, ours))
    return compare(
        [replace(found, arm=NEW) for found in ours],
        [replace(found, arm=OLD) for found in theirs],
        arm=NEW,
        against=OLD,
    )


def _baseline(folder: Path, rows: set[int]) -> list[Observation]:
    return [found for found in read_answers(folder) if found.arm == BASELINE and found.row_id in rows]


def _with_margins(found: Comparison, old: Path) -> Comparison:
    """The comparison with the margins that the old audit saw: answers alone do not tell how near a tie was."""
    if not found.flips:
        return found
    margins = read_margins(old)
    flips = [replace(flip, margin=margins.get((flip.row_id, flip.position))) for flip in found.flips]
    judged = by_margin(replace(flip, suspicious=suspicious(flip, found.noise)) for flip in flips)
    return replace(found, flips=judged)


def _unsteady(audit: Audit) -> bool:
    arms = {shown.arm.name: shown for shown in audit.arms}
    again = arms[REPEAT].comparison if REPEAT in arms else None
    return arms[BASELINE].repeats.differs or (again is not None and again.differs)


def _effects(before: Audit, after: Audit) -> Iterator[tuple[str, str]]:
    """Causes that only one of the audits names. An audit that could not look does not say that there is nothing."""
    theirs, ours = _by_causes(before), _by_causes(after)
    for causes, effect in ours.items():
        if causes not in theirs:
            yield causes, "new" if _looked(before, effect) else "not tried in the old audit"
    for causes, effect in theirs.items():
        if causes not in ours:
            yield causes, "gone" if _looked(after, effect) else "not tried in the new audit"


def _by_causes(audit: Audit) -> dict[str, Effect]:
    return {" with ".join(effect.causes): effect for effect in audit.effects}


def _looked(audit: Audit, effect: Effect) -> bool:
    quiet = audit.verdict.kind not in ("run-to-run", "could not tell")
    return quiet and any(shown.arm.name == effect.arm and shown.comparison is not None for shown in audit.arms)


def _moved_thresholds(before: Audit, after: Audit) -> Iterator[Change]:
    theirs = {found.knob: found for found in before.verdict.thresholds}
    for found in after.verdict.thresholds:
        was = theirs.get(found.knob)
        if was is not None and (was.below, was.above) != (found.below, found.above):
            yield Change(found.knob, _span(was), _span(found))


def _span(found: Threshold) -> str:
    return f"from {found.above} on, not up to {found.below}"


def _changes(before: Audit, after: Audit) -> Iterator[Change]:
    theirs, ours = flat_fingerprint(before), flat_fingerprint(after)
    for what in dict.fromkeys((*theirs, *ours)):
        if theirs.get(what, "") != ours.get(what, ""):
            yield Change(what, theirs.get(what, ""), ours.get(what, ""))


def flat_fingerprint(audit: Audit) -> dict[str, str]:
    """The fingerprint as names and texts, without what it says of the questions."""
    found: Fingerprint = audit.fingerprint
    nested: Mapping[str, Mapping[str, Any]] = {"": found.versions, "hardware ": found.hardware, "knob ": found.knobs}
    return {
        "checkpoint": audit.checkpoint,
        "engine": found.engine,
        "model": found.model,
        "model hash": found.model_hash,
        "tokenizer hash": found.tokenizer_hash,
        **{kind + name: value for kind, values in nested.items() for name, value in _leaves(values)},
    }


def _leaves(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Values as texts, those of mappings under names with a dot."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{below}", text) for below, text in _leaves(value))
        else:
            yield name, str(value)


def _arms(before: Audit, after: Audit) -> Iterator[ArmDiff]:
    theirs = {shown.arm.name: shown for shown in before.arms}
    for shown in after.arms:
        was = theirs.get(shown.arm.name)
        if was is None or was.arm.against != shown.arm.against or not shown.arm.against or shown.arm.name == BASELINE:
            continue
        unit, name = _unit(was, shown)
        old, new = _rate(was, name), _rate(shown, name)
        moved = old is not None and new is not None and (old.low > new.high or new.low > old.high)
        yield ArmDiff(arm=shown.arm.name, unit=unit, old=old, new=new, moved=moved)


def _unit(*sides: Shown) -> tuple[str, str]:
    for unit, name in (("log-probabilities", "logprob_equal"), ("tokens", "token_equal")):
        if all(_rate(side, name) is not None for side in sides):
            return unit, name
    return "texts", "text_equal"


def _rate(shown: Shown, name: str) -> Rate | None:
    rate: Rate | None = None if shown.comparison is None else getattr(shown.comparison, name)
    return rate if rate is not None and rate.of else None


def _exit_code(
    answers: Comparison, unsteady: tuple[str, ...], effects: tuple[tuple[str, str], ...], thresholds: tuple[Change, ...]
) -> int:
    if len(unsteady) == 2 or not answers.rows:
        return 3
    turned = any(state in ("new", "gone") for _, state in effects)
    return 4 if answers.differs or unsteady or turned or thresholds else 0


def _sentence(
    code: int,
    answers: Comparison,
    unsteady: tuple[str, ...],
    effects: tuple[tuple[str, str], ...],
    thresholds: tuple[Change, ...],
) -> str:
    if not answers.rows:
        return "Could not tell: no row has an answer in both audits."
    if code == 3:
        return (
            "Could not tell: neither engine agrees with itself from run to run, so nothing can be read from the rest."
        )
    exact = "bit for bit" if answers.bitwise else f"to the {answers.digits} digits that were sent"
    if code == 0:
        return f"No difference: {answers.rows} answers are the same, {exact}, and so are the effects found."
    parts = [
        f"the answers differ ({_seen(answers)})" if answers.differs else f"the baselines' answers are the same, {exact}"
    ]
    parts += [f"the {name} engine does not agree with itself, so what differs may be that" for name in unsteady]
    parts += [f"the effect of {causes} is {state}" for causes, state in effects if state in ("new", "gone")]
    parts += [f"{change.what} begins to show {change.new} (was: {change.old})" for change in thresholds]
    return f"Different: {'; '.join(parts)}."


def _seen(found: Comparison) -> str:
    rates = (
        (found.parsed_equal, "answers read differently by the task"),
        (found.text_equal, "other texts"),
        (found.logprob_equal, "other log-probabilities"),
    )
    counts = [f"{rate.of - rate.hits:,} of {rate.of:,} {what}" for rate, what in rates if rate and rate.of > rate.hits]
    if found.shift and found.shift[-1] > 0:
        counts.append(f"by up to {found.shift[-1]:.2g} nats")
    return ", ".join(counts) or "in the most likely token, or in how they end"
