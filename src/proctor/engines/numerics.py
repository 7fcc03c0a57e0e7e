"""Planted numerics of the scripted engine: what its pseudo-model gets differently, and when.

The fields are those of `proctor.spec.numerics`, which describes them for users.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Literal

import msgspec

from proctor.engines.knobs import Value
from proctor.rows import UserError

WHERE = "engine.numerics"
SMALLEST_VOCABULARY = 16


class PlantedKnob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A knob that the engine declares: an environment variable or an entry of ``numerics.settings``."""

    name: str
    default: Value = None
    values: tuple[Value, ...] = ()
    env: bool = False
    ordered: bool = False
    listed: bool = False
    slower: float = 1.0


class Effect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A difference in the logits, and the conditions that must all hold for it."""

    ulps: float = 0.0
    nats: float = 0.0
    loses: float = 0.0
    nan: bool = False
    blind: bool = False
    hides: int = 0
    noise: bool = False
    batch: int = 1
    prefix: int = 0
    company: Literal["all", "any"] = "all"
    length: int = 0
    total: int = 0
    place: int = 0
    warm: int = 0
    served: int = 0
    step: int = 0
    observed: bool | None = None
    stops: bool | None = None
    top: int = 0
    knobs: dict[str, Value] = {}
    at_least: dict[str, float] = {}
    dtypes: tuple[str, ...] = ()
    every: int = 1
    below: int = 1
    share: float = 1.0


class Numerics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pseudo-model and what is planted in it."""

    seed: int = 0
    by_checkpoint: bool = False
    shortest: int = 8
    longest: int = 16
    vocabulary: int = 512
    words: tuple[str, ...] = ()
    near_ties: float = 0.05
    error: float = 1.0
    unit: Literal["words", "characters"] = "words"
    decimals: int | None = None
    digits: int | None = None
    text_only: bool = False
    fixed_seed: int | None = None
    settings: dict[str, Value] = {}
    knobs: tuple[PlantedKnob, ...] = ()
    effects: tuple[Effect, ...] = ()

    def check(self) -> None:
        """Looks for what makes no sense together.

        Raises:
            UserError: what is wrong.
        """
        if not 1 <= self.shortest <= self.longest:
            raise UserError("answers need 1 <= shortest <= longest", where=WHERE)
        if self.vocabulary < SMALLEST_VOCABULARY:
            raise UserError(f"the vocabulary has fewer than {SMALLEST_VOCABULARY} tokens", where=WHERE)
        known = {knob.name for knob in self.knobs}
        dotted = next((name for name in known if "." in name), None)
        if dotted is not None:
            raise UserError(f"the planted knob {dotted!r} has a dot in its name", where=WHERE)
        named = {name for effect in self.effects for name in (*effect.knobs, *effect.at_least)}
        for name in sorted((named | set(self.settings)) - known):
            raise UserError(f"there is no planted knob {name!r}", where=WHERE, fix="declare it under `knobs`")

    def of(self, checkpoint: str) -> Numerics:
        """Those of one checkpoint: another model for each, where that is asked for."""
        if not self.by_checkpoint:
            return self
        digest = hashlib.blake2b(f"{self.seed}:{checkpoint}".encode(), digest_size=8).digest()
        return msgspec.structs.replace(self, seed=int.from_bytes(digest, "big") >> 1)

    def knob_values(self, env: Mapping[str, str] | None = None) -> dict[str, Value]:
        """What every planted knob stands at.

        Raises:
            UserError: an environment variable holds what is no value of its knob.
        """
        variables = os.environ if env is None else env
        return {knob.name: self._value(knob, variables) for knob in self.knobs}

    def _value(self, knob: PlantedKnob, env: Mapping[str, str]) -> Value:
        if not knob.env:
            return self.settings.get(knob.name, knob.default)
        text = env.get(knob.name)
        return knob.default if text is None else _as_type_of(knob.default, text, knob.name)


def _as_type_of(default: Value, text: str, name: str) -> Value:
    try:
        if isinstance(default, bool):
            return bool(int(text))
        if isinstance(default, int | float):
            return type(default)(text)
    except ValueError:
        raise UserError(f"{name}={text!r} is no {type(default).__name__}", where=WHERE) from None
    return text
