"""Whether a compiled engine gives the answers it gave before.

Probes are requests over all shapes of the workload, answered greedily by both arms, twice each. An answer that differs
says little by itself: where two tokens are as good as equally likely, rounding turns one into the other. So a changed
answer passes as a near-tie where the log-probability between the two most likely tokens, in the eager arm and where the
answers part, is at most `NEAR_TIE` for the model's number format; any other changed answer fails the gate.

The bounds are conventions: 128 units of roundoff of the half formats, which is eight roundings of a logit of size 16,
and far more than that for float32, whose 128 units would be below what sums of a few thousand terms lose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from proctor.compile.model import ProbeAnswers
from proctor.rows import Request, Response

NEAR_TIE = {"float64": 1e-6, "float32": 1e-3, "float16": 0.0625, "bfloat16": 0.5}
"""Nats, by number format."""
_SHOWN = 200

Ask = Callable[[], Sequence[Response]]


def as_probe(request: Request) -> Request:
    """The request, to be answered greedily and with the two most likely tokens at each position."""
    greedy = replace(request.sampling, temperature=0.0, top_p=1.0, logprobs=True, top_logprobs=2)
    return replace(request, sampling=greedy)


def gate_answers(target: str, names: Mapping[int, str], eager: Ask, compiled: Ask, dtype: str) -> ProbeAnswers:
    """Compares the answers of the two arms.

    Args:
        target: what is compiled in the compiled arm.
        names: of the probes, by their request's id; each has to be answered in both arms.
        eager, compiled: answer all probes, see `as_probe`; each is called twice, the eager arm first.
        dtype: the model's number format, such as ``bfloat16``.
    """
    before, again = _by_id(eager()), _by_id(eager())
    after, anew = _by_id(compiled()), _by_id(compiled())
    changed = [id_ for id_ in names if _told(before.get(id_)) != _told(after.get(id_))]
    margins = [_margin(before.get(id_), after.get(id_)) for id_ in changed]
    steady = _same(names, before, again), _same(names, after, anew)
    reason = _reason([names[id_] for id_ in changed], margins, NEAR_TIE.get(dtype, 0.0), steady)
    return ProbeAnswers(
        target=target,
        probes=len(names),
        changed=tuple((names[id_], _told(before.get(id_)), _told(after.get(id_))) for id_ in changed),
        steady_eager=steady[0],
        steady_compiled=steady[1],
        margins=tuple(margins),
        passed=not reason,
        reason=reason,
    )


def _by_id(responses: Sequence[Response]) -> dict[int, Response]:
    return {one.id: one for one in responses}


def _told(response: Response | None) -> str:
    if response is None:
        return "[no answer]"
    if response.failure is not None:
        return f"[{response.failure.kind.value}: {response.failure.message[:_SHOWN]}]"
    return response.text or ""


def _same(names: Mapping[int, str], one: Mapping[int, Response], other: Mapping[int, Response]) -> bool:
    return all(_told(one.get(id_)) == _told(other.get(id_)) for id_ in names)


def _margin(eager: Response | None, compiled: Response | None) -> float | None:
    """Between the two most likely tokens where the answers part; None where that is not known."""
    if eager is None or compiled is None or not eager.top_logprobs:
        return None
    pairs = enumerate(zip(eager.token_ids, compiled.token_ids, strict=False))
    shorter = min(len(eager.token_ids), len(compiled.token_ids))
    place = next((number for number, (mine, other) in pairs if mine != other), shorter)
    if place >= len(eager.top_logprobs) or len(eager.top_logprobs[place]) < 2:
        return None
    (_, first), (_, second) = eager.top_logprobs[place][:2]
    return first - second


def _reason(changed: Sequence[str], margins: Sequence[float | None], bound: float, steady: tuple[bool, bool]) -> str:
    if steady == (True, False):
        return "the compiled engine does not repeat its own answers, the eager one does"
    for name, margin in zip(changed, margins, strict=True):
        if margin is None:
            return f"the answer to {name} changed, by how little is not known"
        if not margin <= bound:
            return f"the answer to {name} changed where two tokens were {margin:.3g} nats apart, no near-tie"
    return ""
