"""How an audit is made: which rows, which arms, how often."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from proctor.spec.model import MOST, MOST_ID, SpecModel


class AuditSpec(SpecModel):
    """A standing audit of a run's engine, or the settings of ``proctor audit``."""

    sample: int = Field(default=64, ge=1, le=100_000)
    """Rows that are asked, spread evenly over the source."""
    rounds: int = Field(default=2, ge=2, le=1000)
    """How often every arm is run. Each round starts its engines anew."""
    arms: list[str] = []
    """Knobs to turn, by name: ``repeat``, ``batch``, ``neighbours``, ``order``, ``prefix``, ``cache``, ``logprobs``,
    ``top``, ``stop``, ``seed``, ``images``, and the engine's own (``proctor audit --dry-run`` lists them). Default: all
    that the engine declares."""
    batches: list[Annotated[int, Field(ge=2, le=MOST)]] = []
    """Batch sizes to try, up to `engine.batch_size`. Default: powers of two up to that, and that size."""
    prefix_words: list[Annotated[int, Field(ge=1, le=MOST)]] = [64, 512]
    """Lengths, in words, of a shared text in front of every prompt, to be tried alone and in company."""
    seed: int = Field(default=0, ge=0, le=MOST_ID)
    """Of every random choice of the audit: order, neighbours, what is interleaved how."""
    faults: bool = False
    """Whether `engine.faults` hit the audit's own engines, too: a rehearsal of the audit. Without it they hit the run
    alone."""
    most_sittings: int = Field(default=400, ge=4, le=MOST)
    """Most sittings (an arm, once) that the search for causes and thresholds may add up to."""

    @field_validator("batches", "prefix_words")
    @classmethod
    def _ascending(cls, value: list[int]) -> list[int]:
        return sorted(set(value))
