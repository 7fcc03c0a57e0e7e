"""Is the gain end to end one that the encoder's share allows?

Where the encoder has the share s of the time and its own time falls to c of what it was, the whole falls to
1 - s(1 - c).
G. Amdahl (1967), "Validity of the single processor approach to achieving large scale computing capabilities", AFIPS 30.
"""

from __future__ import annotations

import numpy as np

from proctor.compile.estimate import Array, Estimate, interval
from proctor.compile.model import ANSWERS, ENCODER, Amdahl, Interval, Measured
from proctor.compile.subsets import estimates_of
from proctor.compile.words import gain, times


def amdahl(measured: Measured) -> Amdahl | None:
    """Holds the measured gain against the predicted one; None where the encoder or the answers were not timed.

    It is flagged where it lies above: by the interval of the difference where there is one, else by the bare values.
    """
    both = estimates_of(measured, [ENCODER, ANSWERS])
    if len(both) < 2:
        return None
    encoder, answers = both[ENCODER], both[ANSWERS]
    if answers.value.min() <= 0 or encoder.value.min() <= 0:
        return None
    share = float(encoder.value[0] / answers.value[0])
    if share >= 1:
        return _impossible(share, encoder, answers)
    processes, looks = encoder.processes, encoder.looks
    predicted = interval(_predicted(encoder.value, answers.value), _guarded(encoder, answers), processes, looks)
    measured_gain = answers.interval(_gain)
    above = _gain(answers.draws) - _guarded(encoder, answers)
    excess = interval(measured_gain.value - predicted.value, above, processes, looks)
    most = 1 / (1 - share) - 1
    flagged = excess.value > 1e-9 if excess.low is None else excess.low > 0
    return Amdahl(
        share=share,
        predicted=predicted,
        most=most,
        measured=measured_gain,
        flagged=flagged,
        reason=_reason(share, predicted, most, measured_gain, flagged=flagged),
    )


def _gain(seconds: Array) -> Array:
    """Relative gain in throughput, of (…, 2) seconds."""
    return np.asarray(seconds[..., 0] / seconds[..., 1] - 1)


def _predicted(encoder: Array, answers: Array) -> float:
    return float(1 / (1 - (encoder[0] - encoder[1]) / answers[0]) - 1)


def _guarded(encoder: Estimate, answers: Estimate) -> Array:
    """The prediction of each draw; the encoder of one draw cannot save all the time of another's answers."""
    saved = (encoder.draws[..., 0] - encoder.draws[..., 1]) / answers.draws[..., 0]
    return np.asarray(1 / (1 - np.minimum(saved, 0.99)) - 1)


def _reason(share: float, predicted: Interval, most: float, measured: Interval, *, flagged: bool) -> str:
    allowed = f"{100 * share:.1f} % of the time is the encoder's: its own gain allows {gain(predicted)} end to end"
    free = f"an encoder that takes no time would give {100 * most:+.1f} %"
    if not flagged:
        return f"{allowed}, and {gain(measured)} was measured; {free}"
    factor = f", {times(measured.value / predicted.value)} the prediction" if predicted.value > 0 else ""
    why = "another cause, or noise" if predicted.low is None else "something else than the encoder changed, too"
    return f"{allowed}, but {gain(measured)} was measured{factor}: {why}; {free}"


def _impossible(share: float, encoder: Estimate, answers: Estimate) -> Amdahl:
    return Amdahl(
        share=share,
        predicted=encoder.interval(_gain),
        most=None,
        measured=answers.interval(_gain),
        flagged=True,
        reason=f"the encoder alone takes {times(share)} the time end to end: they were not timed under the same load, "
        "or the engine overlaps them, and nothing can be predicted",
    )
