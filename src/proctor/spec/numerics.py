"""Planted numerics of the scripted engine, to rehearse an audit: a pseudo-model, and what it gets differently when."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from proctor.spec.model import MOST, MOST_ID, SpecModel

Value = bool | int | float | str | None
Count = Annotated[int, Field(ge=0, le=MOST)]


class PlantedKnobSpec(SpecModel):
    """A knob that the scripted engine declares, for an audit to turn."""

    name: str = Field(min_length=1, pattern=r"^[^.=\x00]+$")
    """Its name, without a dot."""
    default: Value = None
    """What it stands at."""
    values: list[Value] = []
    """What it can be turned to."""
    env: bool = False
    """It is an environment variable of that name; else an entry of ``numerics.settings``."""
    ordered: bool = False
    """Its values are numbers, between which a threshold can be searched."""
    listed: bool = False
    """Of an ordered one: there is nothing between its values (1, 2, 4 devices)."""
    slower: float = Field(default=1.0, gt=0)
    """A row takes so many times ``row_ms`` while the knob is not at its default."""


class EffectSpec(SpecModel):
    """A difference in the logits of the pseudo-model, and the conditions that must all hold for it."""

    ulps: float = Field(default=0.0, ge=0)
    """How far every logit moves, at most: in units in the last place of a logit of 4 in the engine's number format."""
    nats: float = Field(default=0.0, ge=0)
    """How far it moves beyond that, whatever the number format. 1e-6 flips near-ties only, 3 gives wrong answers."""
    loses: float = Field(default=0.0, ge=0)
    """How much the most likely token loses (nats): another one is chosen wherever that is more than its lead."""
    nan: bool = False
    """The log-probabilities that are told are no numbers; the tokens stay as they are."""
    blind: bool = False
    """The row is answered as if its images were not there; from the first token on, whatever ``step`` says."""
    hides: Count = 0
    """So many of the most likely tokens that were asked for are not told."""
    noise: bool = False
    """It moves to somewhere else each time (run-to-run); else always to the same place, as another kernel does."""
    batch: int = Field(default=1, ge=1, le=MOST)
    """Only if at least so many rows are worked on together."""
    prefix: Count = 0
    """Only if a prompt shares at least so many units of its beginning with other prompts of its batch."""
    company: Literal["all", "any"] = "all"
    """Whether ``prefix`` must be shared with all of them, or with any."""
    length: Count = 0
    """Only for prompts of at least so many units."""
    total: Count = 0
    """Only if the prompts of a batch have at least so many units together."""
    place: Count = 0
    """Only for rows at this place of their batch and behind, counted from 0."""
    warm: Count = 0
    """Only if the first so many units of the prompt were there in an earlier batch of the same process."""
    served: Count = 0
    """Only when the process has answered so many rows in earlier batches."""
    step: Count = 0
    """Only from this token of an answer on, counted from 0."""
    observed: bool | None = None
    """Only for requests that ask for log-probabilities (true), or only for those that do not (false)."""
    stops: bool | None = None
    """Only for requests with a text that ends the answer (true), or only for those without (false)."""
    top: Count = 0
    """Only for requests that ask for at least so many of the most likely tokens."""
    knobs: dict[str, Value] = {}
    """Only while these planted knobs stand at these values; with two of them, only together."""
    at_least: dict[str, float] = {}
    """Only while these planted knobs, which hold numbers, stand at least so high."""
    dtypes: list[Literal["float64", "float32", "float16", "bfloat16"]] = []
    """Only in these number formats."""
    every: int = Field(default=1, ge=1, le=MOST)
    """Only for rows with ``row_id % every < below``."""
    below: int = Field(default=1, ge=1, le=MOST)
    """See `every`."""
    share: float = Field(default=1.0, gt=0, le=1)
    """Only for this share of the rows: the same ones each time, or with ``noise`` others each time."""


class NumericsSpec(SpecModel):
    """A pseudo-model: its tokens are a function of the row, the position and the tokens so far."""

    seed: int = Field(default=0, ge=0, le=MOST_ID)
    """Another seed is another model."""
    by_checkpoint: bool = False
    """Each checkpoint is another model, by the last part of its path. Default: all are the same."""
    shortest: int = Field(default=8, ge=1, le=MOST)
    """Tokens of the shortest answer."""
    longest: int = Field(default=16, ge=1, le=MOST)
    """Tokens of the longest answer."""
    vocabulary: int = Field(default=512, ge=16, le=MOST)
    """Number of tokens that there are."""
    words: list[str] = []
    """What the tokens are called in the text, over and over. Default: ``w0``, ``w1`` ..."""
    near_ties: float = Field(default=0.05, ge=0, le=1)
    """Share of positions where the two most likely tokens are within 0.001 nats, down to 1e-7."""
    error: float = Field(default=1.0, ge=0)
    """Rounding of the number format, in units in the last place of a logit of 4; always the same for the same input."""
    unit: Literal["words", "characters"] = "words"
    """What the lengths of prompts are counted in; an image counts as one."""
    decimals: int | None = Field(default=None, ge=0, le=17)
    """Round the log-probabilities that are told to so many decimals."""
    digits: int | None = Field(default=None, ge=1, le=17)
    """Round them to so many significant digits."""
    text_only: bool = False
    """Tell the text, and neither tokens nor log-probabilities."""
    fixed_seed: int | None = Field(default=None, ge=0, le=MOST_ID)
    """Draw with this seed, whatever a request asks for."""
    settings: dict[str, Value] = {}
    """What the planted knobs stand at, if not at their defaults."""
    knobs: list[PlantedKnobSpec] = []
    """Knobs that the engine declares."""
    effects: list[EffectSpec] = []
    """What is planted. Nothing planted is an engine that always answers the same."""

    @model_validator(mode="after")
    def _lengths(self) -> NumericsSpec:
        if self.shortest > self.longest:
            raise ValueError("the shortest answer is longer than the longest")
        return self
