"""Which planted effects hit which rows of a batch: the conditions, and what an engine remembers of earlier batches."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Sequence
from typing import NamedTuple

from proctor.engines.numerics import Effect, Numerics
from proctor.engines.pseudo_model import Strike, row_digest
from proctor.rows import Request, TextPart


class _Row(NamedTuple):
    """A row in its batch: its place, its prompt in units, and how many of them it shares with one or all others."""

    request: Request
    place: int
    units: tuple[str, ...]
    shared_by_all: int
    shared_by_any: int


class Effects:
    """Decides for each batch.

    Args:
        numerics: what is planted.
        dtype: number format of the engine.
    """

    def __init__(self, numerics: Numerics, dtype: str) -> None:
        self._numerics = numerics
        self._dtype = "float32" if dtype == "auto" else dtype
        self._knobs = numerics.knob_values()
        self._seen: set[tuple[str, ...]] = set()
        self._served = 0

    @property
    def slowdown(self) -> float:
        """How many times as long as usual a row takes, with the knobs where they are."""
        factor = 1.0
        for knob in self._numerics.knobs:
            if self._knobs[knob.name] != knob.default:
                factor *= knob.slower
        return factor

    def strikes(self, batch: Sequence[Request]) -> list[list[Strike]]:
        """For each row of a batch the effects that hit it; the batch then counts as served."""
        rows = _rows(batch, self._numerics.unit)
        total = sum(len(row.units) for row in rows)
        numbered = [(n, effect) for n, effect in enumerate(self._numerics.effects) if self._switched_on(effect)]
        hits = [
            [
                Strike(number, effect, os.urandom(8) if effect.noise else b"")
                for number, effect in numbered
                if self._in_traffic(effect, row, len(rows), total) and self._chosen(effect, number, row.request)
            ]
            for row in rows
        ]
        for effect in self._numerics.effects:
            self._seen |= {row.units[: effect.warm] for row in rows if effect.warm}
        self._served += len(rows)
        return hits

    def _switched_on(self, effect: Effect) -> bool:
        """By knobs and number format, which do not change while the engine runs."""
        return (
            (not effect.dtypes or self._dtype in effect.dtypes)
            and all(self._knobs[name] == value for name, value in effect.knobs.items())
            and all(_number(self._knobs[name]) >= least for name, least in effect.at_least.items())
        )

    def _in_traffic(self, effect: Effect, row: _Row, size: int, total: int) -> bool:
        """By what else is there, and what was there before."""
        shared = row.shared_by_all if effect.company == "all" else row.shared_by_any
        return (
            size >= effect.batch
            and (not effect.prefix or shared >= effect.prefix)
            and len(row.units) >= effect.length
            and total >= effect.total
            and row.place >= effect.place
            and self._served >= effect.served
            and (not effect.warm or (len(row.units) >= effect.warm and row.units[: effect.warm] in self._seen))
            and _as_asked(effect, row.request)
        )

    def _chosen(self, effect: Effect, number: int, request: Request) -> bool:
        """By row id and by lot; the lot of an effect without noise falls the same way every time."""
        if request.id % effect.every >= effect.below:
            return False
        if effect.share >= 1:
            return True
        entropy = os.urandom(8) if effect.noise else row_digest(request, self._numerics.seed) + bytes([number])
        return random.Random(entropy).random() < effect.share  # noqa: S311 (nothing secret)


def prompt_units(request: Request, unit: str) -> tuple[str, ...]:
    """The prompt as a sequence of words or characters; each image is one unit, equal only to the same image."""
    images = iter(request.images)
    units: list[str] = []
    for message in request.prompt:
        for part in message.parts:
            if isinstance(part, TextPart):
                units += part.text.split() if unit == "words" else part.text
            else:
                units.append(f"[image {hashlib.blake2b(next(images, b''), digest_size=16).hexdigest()}]")
    return tuple(units)


def shared_units(one: Sequence[str], other: Sequence[str]) -> int:
    """How many units two prompts have in common before they differ."""
    for number, (first, second) in enumerate(zip(one, other, strict=False)):
        if first != second:
            return number
    return min(len(one), len(other))


def _rows(batch: Sequence[Request], unit: str) -> list[_Row]:
    prompts = [prompt_units(request, unit) for request in batch]
    rows = []
    for place, (request, units) in enumerate(zip(batch, prompts, strict=True)):
        others = [shared_units(units, other) for number, other in enumerate(prompts) if number != place]
        rows.append(_Row(request, place, units, min(others, default=0), max(others, default=0)))
    return rows


def _as_asked(effect: Effect, request: Request) -> bool:
    sampling = request.sampling
    observed = sampling.logprobs or sampling.top_logprobs > 0
    return (
        effect.observed in (None, observed)
        and effect.stops in (None, bool(sampling.stop))
        and sampling.top_logprobs >= effect.top
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("-inf")
