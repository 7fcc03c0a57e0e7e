"""An arm against another, and an arm against itself: from pairs of answers to a `Comparison`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from proctor.audit.compare.align import align
from proctor.audit.compare.answers import Answers, answers_of
from proctor.audit.compare.columns import columns_of
from proctor.audit.compare.intervals import NOTHING
from proctor.audit.compare.logprobs import figures
from proctor.audit.compare.pairs import Pairing, pair_repeats, pair_rounds
from proctor.audit.compare.parting import parting
from proctor.audit.compare.repeats import repeats_of
from proctor.audit.compare.scores import Scores, scores_of
from proctor.audit.model import Comparison, Observation

NOTHING_COMPARED = "nothing could be compared"


def compare(
    ours: Sequence[Observation],
    theirs: Sequence[Observation],
    /,
    *,
    replayed: bool = False,
    arm: str | None = None,
    against: str | None = None,
) -> Comparison:
    """Compares two arms row by row, each round with the same round of the other.

    `Comparison.differs` is a statement about what was seen and not a test: it holds if any pair of answers differs in a
    token, in its text, in what the task read from it, in the reason it ended for, in the most likely token, or in a
    log-probability at the precision that was transported (or is NaN on one side only). Rows that failed on a side are
    counted and do not make it hold.

    Args:
        ours, theirs: observations of one arm each, in any order.
        replayed: the same tokens were forced on both sides (`Sampling.forced`), so every position is compared, and
            answers are not. Both sides must be replays: an engine may score forced tokens as it reads a prompt, which
            has other numerics than decoding, so a replay says nothing beside an answer that was given freely.
        arm, against: names of the two arms; read from the observations where left out.

    Raises:
        ValueError: observations of several arms on a side, or a row twice in a round.
    """
    return _comparison(pair_rounds(ours, theirs, arm, against), replayed=replayed)


def compare_repeats(observations: Sequence[Observation]) -> Comparison:
    """Compares the sittings of one way of asking with each other: run-to-run.

    Args:
        observations: of one arm with several rounds, or of several arms that ask in the same way.

    Returns:
        All pairs of sittings together (see `proctor.audit.compare.pairs.ALL_PAIRS_UP_TO`), with `unique` and
        `modal_share`. A row's pairs are one unit in every interval.

    Raises:
        ValueError: a row twice in a round of an arm.
    """
    found = _comparison(pair_repeats(observations), replayed=False)
    unique, modal_share = repeats_of(observations)
    return replace(found, unique=unique, modal_share=modal_share, differs=found.differs or unique.hits > 0)


def _comparison(pairing: Pairing, *, replayed: bool) -> Comparison:
    aligned = [align(pair) for pair in pairing.pairs]
    columns = columns_of(aligned)
    numbers = figures(aligned, columns, replayed=replayed)
    parts = parting(aligned, columns, numbers, replayed=replayed)
    whole = [item.pair for item in aligned if not item.cut]
    answers = Answers(NOTHING, None, False, ()) if replayed else answers_of(aligned)
    scores = Scores(None, None, None) if replayed else scores_of(whole)
    nothing = () if aligned else (NOTHING_COMPARED,)
    return Comparison(
        arm=pairing.arm,
        against=pairing.against,
        rows=len(aligned),
        failed=pairing.failed,
        digits=numbers.digits,
        decimals=numbers.decimals,
        bitwise=numbers.bitwise,
        logprob_equal=numbers.logprob_equal,
        token_equal=parts.token_equal,
        text_equal=None if replayed else answers.text_equal,
        parsed_equal=answers.parsed_equal,
        top1_equal=parts.top1_equal,
        shift=numbers.shift,
        rms=numbers.rms,
        noise=numbers.noise,
        ulp=numbers.ulp,
        flips=parts.flips,
        survival=parts.survival,
        score_change=scores.score_change,
        score_flips=scores.score_flips,
        mcnemar=scores.mcnemar,
        differs=numbers.differs or answers.differs or parts.differs,
        remarks=(*nothing, *pairing.remarks, *parts.remarks, *numbers.remarks, *answers.remarks),
    )
