"""The words of the audit: arms, what was observed in them, and what a comparison of two arms says."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from proctor.engines.knobs import Knob, Value

BASELINE = "baseline"
REPEAT = "repeat"
"""The baseline once more, in the same process."""
Layer = Literal["repeat", "traffic", "observer", "cache", "engine", "control", "version"]


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One way of asking the same questions.

    Attributes:
        name: ``baseline``, ``repeat``, ``batch=8``, ``dtype=bfloat16``, ``batch=8 x prefix=256`` ...
        changes: the knobs that differ from the baseline's, with their values.
        against: name of the arm that it is compared with; an arm with a condition (a shared prefix) is compared with
            one that has the same condition and no company.
        layer: which question it belongs to.
    """

    name: str
    changes: dict[str, Value] = {}
    against: str = BASELINE
    layer: Layer = "engine"


class Sitting(NamedTuple):
    """One arm, once: the unit that is interleaved with others."""

    arm: str
    round: int


class ReplayPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Which arms sit once more with the tokens of the baseline forced, so that positions behind a flip are compared.

    Only those in which an answer parts from its reference's, and the one whose effect is judged: elsewhere every
    position is compared already. The reference sits beside each, with the same tokens forced.

    Attributes:
        arms: names of those that would, if they part.
        sittings: at most, with references and runs of higher precision.
        why_not: why none can; empty if they can.
    """

    arms: tuple[str, ...] = ()
    sittings: int = 0
    why_not: str = ""


class Design(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that will be done, written down before it is done.

    Attributes:
        arms: the baseline first.
        knobs: every knob that is known of this engine, turned or not.
        wanted: names of those that may be turned.
        rows: ids of the probe rows.
        sittings: in the order in which they run.
        untried: knobs (with values) that are known and not turned, with the reason.
        replay: what is asked once more with given tokens.
        seed: of every random choice (order, neighbours).
    """

    arms: tuple[Arm, ...]
    knobs: tuple[Knob, ...]
    wanted: tuple[str, ...]
    rows: tuple[int, ...]
    sittings: tuple[Sitting, ...]
    untried: tuple[tuple[str, str], ...] = ()
    replay: ReplayPlan = ReplayPlan()
    seed: int = 0

    def arm(self, name: str) -> Arm:
        """The arm of that name."""
        return next(arm for arm in self.arms if arm.name == name)


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What one row got in one sitting.

    Attributes:
        token_ids: chosen tokens; empty where the engine does not say.
        logprobs: natural log-probabilities of the chosen tokens; None where not asked for.
        top: the most likely tokens at each position with their log-probabilities, most likely first; None where the
            engine does not say.
        parsed: what the task read from the answer, as JSON; None where it could not.
        score: the task's headline score of the row (0 or 1, or a number); None where there is none.
        failure: error kind and message where there is no answer.
        seconds: from hand-over to answer.
    """

    arm: str
    round: int
    row_id: int
    text: str | None = None
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] | None = None
    top: tuple[tuple[tuple[int, float], ...], ...] | None = None
    finish_reason: str | None = None
    parsed: str | None = None
    score: float | None = None
    failure: tuple[str, str] | None = None
    prompt_tokens: int | None = None
    seconds: float | None = None


class Rate(NamedTuple):
    """A share with its 95 % interval.

    Attributes:
        hits, of: counts. ``of`` 0 means that nothing could be compared.
        low, high: Wilson bounds. Where a row has several units (tokens, rounds), at the effective sample size with the
            rows as clusters; `method` says so.
    """

    hits: int
    of: int
    low: float
    high: float
    method: str = "wilson"

    @property
    def value(self) -> float | None:
        """The share; None where nothing was compared."""
        return self.hits / self.of if self.of else None


class Flip(msgspec.Struct, frozen=True, kw_only=True):
    """A row whose tokens part in two arms; where tokens were replayed, a position at which another one is most likely.

    Attributes:
        position: of the first token that differs, counted from 0.
        margin: log-probability between the two most likely tokens there, in the reference arm (nats); None where
            unknown. Near 0 is a near-tie; a large one is a bug.
        shift: largest absolute difference of log-probabilities of the equal tokens before that position (nats); where
            tokens were replayed, of all positions of the row at which the same token is the most likely one.
        jump: largest one at that position, of tokens that both sides list there (nats). Where the most likely token is
            taken it is at least half the margin; less says that the log-probabilities do not tell how it was chosen.
        suspicious: whether the margin is more than rounding of the size seen can close; None where unknown.
        texts: the two answers; empty where tokens were replayed.
        parsed_differs: whether what the task reads from them differs.
    """

    row_id: int
    round: int
    position: int
    margin: float | None
    shift: float | None
    jump: float | None = None
    suspicious: bool | None = None
    texts: tuple[str, str]
    parsed_differs: bool | None = None


class Survival(msgspec.Struct, frozen=True):
    """Kaplan-Meier curve of "tokens still equal" over positions; rows that end equal are censored there.

    Attributes:
        positions: where a divergence happened, ascending.
        surviving: share of rows that are still equal after that position, with bounds (Greenwood, log-log).
        at_risk: rows that reached the position undiverged.
    """

    positions: tuple[int, ...] = ()
    surviving: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    at_risk: tuple[int, ...] = ()


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """An arm against another, row by row; positions after a row's first flip are not compared unless replayed.

    Attributes:
        arm, against: names.
        rows: pairs in which both sides have an answer; `failed` those in which a side has none.
        digits: significant digits that log-probabilities were transported with on the coarser side (the most that any
            has, where `decimals` are fixed); None: exact.
        decimals: decimals that they were rounded to on the coarser side; None where not so.
        logprob_equal: positions whose log-probability is equal, bit by bit or at `digits`; `bitwise` says which.
        token_equal: rows whose tokens are all equal.
        text_equal, parsed_equal: rows whose answers, or what the task reads from them, are equal.
        top1_equal: positions whose most likely token is equal (up to and including the first flip).
        shift: quantiles of the absolute difference of log-probabilities over compared positions: 0.5, 0.9, 0.99, 1.
        rms: root of the mean square of those differences (nats).
        noise: how far log-probabilities move in most rows: 0.9 quantile over the rows of a row's largest difference
            (nats), and no less than half the last digit that is transported.
        ulp: quantiles (0.5, 1) of the distance in units in the last place of float32, above a floor of magnitude.
        flips: rows whose tokens part, largest margin first.
        survival: of the first divergence.
        score_change: mean score of arm minus that of against, with a cluster bootstrap by prompt; None without scores.
        score_flips: rows that got worse, and better; `mcnemar` is the exact p-value of their being unequal.
        unique: for repeated sittings: rows with more than one distinct answer.
        modal_share: for repeated sittings: answers that are the most frequent one of their row.
        differs: whether the arm differs from `against` in anything that can be seen at the transported precision.
    """

    arm: str
    against: str
    rows: int
    failed: int = 0
    digits: int | None = None
    decimals: int | None = None
    bitwise: bool = True
    logprob_equal: Rate | None = None
    token_equal: Rate | None = None
    text_equal: Rate | None = None
    parsed_equal: Rate | None = None
    top1_equal: Rate | None = None
    shift: tuple[float, ...] = ()
    rms: float | None = None
    noise: float | None = None
    ulp: tuple[float, ...] = ()
    flips: tuple[Flip, ...] = ()
    survival: Survival = Survival()
    score_change: tuple[float, float, float] | None = None
    score_flips: tuple[int, int] | None = None
    mcnemar: float | None = None
    unique: Rate | None = None
    modal_share: Rate | None = None
    differs: bool = False
    remarks: tuple[str, ...] = ()


class Threshold(msgspec.Struct, frozen=True, kw_only=True):
    """Where an ordered knob begins to have its effect.

    Attributes:
        below, above: the largest value without the effect, and the smallest with it.
        tokens: lengths of the longest prompt at both, where the knob lengthens it and the engine says.
        together: tokens at both of all prompts that are worked on together, where batch or prefix is the knob and the
            engine says.
        known_as: known switch points between the two, with their sources; empty if none fits.
    """

    knob: str
    below: Value
    above: Value
    tokens: tuple[int, int] | None = None
    together: tuple[int, int] | None = None
    known_as: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the audit found, never more than its arms support.

    Attributes:
        kind: ``no effect found``, ``run-to-run``, ``isolated``, ``not isolated``, ``observer``, ``too identical``
            (another seed draws the same answers) or ``could not tell``.
        sentence: the verdict in one sentence.
        causes: knobs, or pairs of knobs, that turn the effect on and off by themselves.
        thresholds: of ordered causes.
        ruled_out: knobs that were turned and had no effect, with what their intervals do not exclude.
        untried: knobs that were not turned.
        nature: ``rounding``, ``wrong results`` or ``unknown``, against a reference of higher precision.
        evidence: clues in words, with figures.
    """

    kind: Literal[
        "no effect found", "run-to-run", "isolated", "not isolated", "observer", "too identical", "could not tell"
    ]
    sentence: str
    causes: tuple[tuple[str, ...], ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    ruled_out: tuple[str, ...] = ()
    untried: tuple[tuple[str, str], ...] = ()
    nature: Literal["rounding", "wrong results", "unknown"] = "unknown"
    evidence: tuple[str, ...] = ()


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """What was audited: versions, hashes, knobs, hardware. Secrets have no place here.

    Attributes:
        requests_hash, images_hash: of all questions together.
        questions: hash of each question with its images, by row id as text: what two audits have in common.
    """

    engine: str
    versions: dict[str, str] = {}
    model: str = ""
    model_hash: str = ""
    tokenizer_hash: str = ""
    requests_hash: str = ""
    images_hash: str = ""
    hardware: dict[str, str] = {}
    knobs: dict[str, Any] = {}
    questions: dict[str, str] = {}
