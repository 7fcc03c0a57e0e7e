"""What an audit varies about the traffic itself: how many rows at once, which neighbours, which order, what before."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from proctor.audit.blank import BLANK, IMAGES, blank
from proctor.engines.knobs import Knob, Value
from proctor.rows import Message, Request, Sampling, TextPart
from proctor.spec.audit import AuditSpec

COMPANY = 1 << 40
"""Ids from here on are neighbours, whose answers nobody looks at; row ids are far smaller."""
TOP = 2
"""How many of the most likely tokens are looked at: the margin of a choice is between two."""
MORE_TOP = 5
STOP = "stop"
"""A knob that is a condition of an effect and none by itself: without it answers are longer by right."""
_LONG_WORDS = 200
_WORDS = ("the", "road", "is", "wet", "and", "a", "car", "stands", "on", "left", "side", "of", "it", "now")


class Asked(NamedTuple):
    """A request of a wave, and whether its answer is looked at."""

    request: Request
    probe: bool


Wave = list[Asked]
"""Requests that are handed to the engine at once; the next wave follows when all have come back."""


def traffic_knobs(
    spec: AuditSpec,
    batch_size: int,
    *,
    most_top: int = 0,
    sampled: bool = False,
    stops: bool = False,
    pictured: bool = False,
) -> tuple[Knob, ...]:
    """The knobs that exist for every engine, since they are about what is sent to it.

    Args:
        spec: the audit's settings.
        batch_size: most rows the engine works on at once: a larger wave would not be one.
        most_top: most likely tokens a position that the engine can be asked for.
        sampled: answers are drawn (temperature above 0), so another seed must give others.
        stops: there are texts that end an answer.
        pictured: rows have images, so blank ones in their place must give other answers.
    """
    return (
        *_company(spec.batches, batch_size),
        *_before(spec.prefix_words),
        *_asked_for(most_top, stops=stops),
        *_controls(sampled=sampled, pictured=pictured),
    )


def _company(batches: Sequence[int], batch_size: int) -> Iterator[Knob]:
    """What shares a batch with a row."""
    fitting = tuple(size for size in batches or _powers(batch_size) if size <= batch_size)
    too_large = tuple(
        (str(size), f"more than engine.batch_size, {batch_size}") for size in batches if size > batch_size
    )
    yield _knob("batch", 1, fitting, "rows asked at once", ordered=True, untried=too_large)
    several = batch_size > 1
    yield _knob(
        "neighbours",
        "others",
        ("copies", "long") if several else (),
        "what else is in the batch: other rows, copies of the same row, or long prompts",
    )
    yield _knob("order", "natural", ("reversed", "shuffled") if several else (), "order in which the rows come")


def _before(prefix_words: Sequence[int]) -> Iterator[Knob]:
    """What the engine has seen before the row's own part."""
    what = "words of a text in front of every prompt, shared by all rows of a batch"
    yield _knob("prefix", 0, tuple(prefix_words), what, ordered=True)
    yield _knob("cache", "cold", ("warm",), "warm: every row was asked before, by the same engine")


def _asked_for(most_top: int, *, stops: bool) -> Iterator[Knob]:
    """What is wanted of the answer."""
    yield _knob("logprobs", True, (False,), "whether log-probabilities are asked for (the observer effect)")
    yield _knob(
        "top",
        TOP,
        (MORE_TOP,) if most_top >= MORE_TOP else (),
        "how many of the most likely tokens are asked for at each position (the observer effect)",
        ordered=True,
    )
    what = "whether the stop texts end an answer; turned only to see whether an effect needs them"
    yield _knob(STOP, True, (False,) if stops else (), what)


def _controls(*, sampled: bool, pictured: bool) -> Iterator[Knob]:
    """What has to change the answers, or the audit is blind."""
    yield _knob("seed", 0, (1,) if sampled else (), "seed of the draws: added to the spec's", control=True)
    what = "the rows' own images, or grey ones of the same size in their place"
    yield _knob(IMAGES, "shown", (BLANK,) if pictured else (), what, control=True)


def _knob(
    name: str,
    baseline: Value,
    values: tuple[Value, ...],
    what: str,
    *,
    ordered: bool = False,
    control: bool = False,
    untried: tuple[tuple[str, str], ...] = (),
) -> Knob:
    return Knob(
        name=name,
        what=what,
        place="traffic",
        baseline=baseline,
        values=values,
        ordered=ordered,
        control=control,
        untried=untried,
    )


def waves(requests: Sequence[Request], changes: Mapping[str, Value], seed: int, top: int) -> list[Wave]:
    """The traffic of one sitting.

    Args:
        requests: the probes, in row order.
        changes: knobs that are not at their baseline; those of engines are passed over.
        seed: of the shuffled order.
        top: how many of the most likely tokens are asked for at each position, with log-probabilities.
    """
    asked = [_as_asked(request, changes, top) for request in _ordered(requests, str(changes.get("order")), seed)]
    size = int(changes.get("batch") or 1)
    if changes.get("neighbours") == "copies":
        return [_with(request, [request] * (size - 1)) for request in asked]
    if changes.get("neighbours") == "long":
        return [_with(request, [_long(request)] * (size - 1)) for request in asked]
    rest = iter(asked)
    made = [list(chunk) for chunk in iter(lambda: tuple(islice(rest, size)), ())]
    # The last wave is filled up with rows that were asked before: every wave has the same size.
    return [_wave(chunk, [asked[n % len(asked)] for n in range(size - len(chunk))]) for chunk in made]


def _powers(most: int) -> list[int]:
    sizes = {1 << n for n in range(1, most.bit_length()) if 1 << n <= most}
    return sorted(sizes | ({most} if most > 1 else set()))


def _ordered(requests: Sequence[Request], order: str, seed: int) -> list[Request]:
    if order == "reversed":
        return list(reversed(requests))
    if order == "shuffled":
        return random.Random(seed).sample(list(requests), len(requests))  # noqa: S311 (nothing secret)
    return list(requests)


def _as_asked(request: Request, changes: Mapping[str, Value], top: int) -> Request:
    wanted = changes.get("logprobs") is not False
    top = int(changes.get("top") or top) if wanted else 0
    seed = request.sampling.seed + int(changes.get("seed") or 0)
    stop = () if changes.get(STOP) is False else request.sampling.stop
    sampling: Sampling = replace(request.sampling, logprobs=wanted, top_logprobs=top, seed=seed, stop=stop)
    prompt = request.prompt
    words = int(changes.get("prefix") or 0)
    if words:
        first = prompt[0]
        prompt = (Message(first.role, (TextPart(_text(words)), *first.parts)), *prompt[1:])
    images = tuple(map(blank, request.images)) if changes.get(IMAGES) == BLANK else request.images
    return replace(request, prompt=prompt, sampling=sampling, images=images)


def _text(words: int) -> str:
    """A text of so many common words; one that is longer begins with one that is shorter."""
    return " ".join(_WORDS[n % len(_WORDS)] for n in range(words)) + "\n"


def _long(request: Request) -> Request:
    return replace(request, prompt=(Message("user", (TextPart(_text(_LONG_WORDS)),)),), images=())


def _with(request: Request, company: Sequence[Request]) -> Wave:
    return _wave([request], company)


def _wave(probes: Sequence[Request], company: Sequence[Request]) -> Wave:
    neighbours = [replace(other, id=COMPANY + number) for number, other in enumerate(company)]
    return [*(Asked(probe, True) for probe in probes), *(Asked(other, False) for other in neighbours)]
