"""What becomes of the difference between split and single-pass attention on its way through a decoder."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import torch

from proctor.audit.attention.decoder import Cache, Decoder, Passed
from proctor.audit.attention.plan import Depth, check_counts
from proctor.audit.attention.torch_setup import full_precision
from proctor.audit.attention.ways import Way, single, split_at


class Grown(msgspec.Struct, frozen=True, kw_only=True):
    """Split at the prefix against a single pass, token for token the same (teacher-forced), then greedily.

    Attributes:
        dtype: number format.
        by_layer: relative difference of the residual stream after each layer (norm over norm).
        single, split: relative error against float64 with the same weights, after each layer.
        positions: log-probabilities that are compared, those of the token that follows.
        logprob_equal: of them, equal bit by bit.
        top1_equal: positions with the same most likely token.
        shift: largest absolute difference of those log-probabilities (nats).
        diverged: step, from 0, at which each prompt's greedy tokens part; None where they do not.
        margins: log-probability between the two most likely tokens at that step (nats), in the single pass.
    """

    dtype: str
    by_layer: tuple[float, ...]
    single: tuple[float, ...]
    split: tuple[float, ...]
    positions: int
    logprob_equal: int
    top1_equal: int
    shift: float
    diverged: tuple[int | None, ...]
    margins: tuple[float | None, ...]

    @property
    def growth(self) -> float | None:
        """How many times as large the difference is after the last layer as after the first."""
        return self.by_layer[-1] / self.by_layer[0] if self.by_layer[0] else None


def grow(shape: Depth) -> Iterator[Grown]:
    """Runs both ways in each number format.

    Raises:
        UserError: sizes that cannot be.
    """
    check_counts(shape)
    for dtype in shape.dtypes:
        with full_precision(shape.device):  # not around the yield: it would hold for the caller, too
            found = _grown(shape, dtype)
        yield found


def tokens(shape: Depth, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random ids: the prefix, (1, prefix), and what follows in each prompt, (prompts, count)."""
    draw = np.random.default_rng((shape.seed, shape.vocabulary))
    drawn = draw.integers(shape.vocabulary, size=shape.prefix + shape.prompts * count)
    ids = torch.from_numpy(drawn).to(shape.device)
    return ids[None, : shape.prefix], ids[shape.prefix :].view(shape.prompts, count)


def _grown(shape: Depth, dtype: str) -> Grown:
    decoder = Decoder(shape, dtype)
    prefix, given = tokens(shape, shape.positions + 1)
    start = decoder.run(prefix, decoder.empty(), single).cache.repeated(shape.prompts)
    ways: tuple[Way, Way] = single, split_at([shape.prefix])
    one, two = (decoder.run(given[:, :-1], start, way) for way in ways)
    true = decoder.double().run(given[:, :-1], start.double(), single)
    chosen = [side.logprobs.gather(-1, given[:, 1:, None])[..., 0] for side in (one, two)]
    diverged, margins = _greedy(decoder, one.cache, given[:, -1:], ways, shape.steps)
    return Grown(
        dtype=dtype,
        by_layer=_relative(two, one, true),
        single=_relative(one, true, true),
        split=_relative(two, true, true),
        positions=chosen[0].numel(),
        logprob_equal=int((chosen[0] == chosen[1]).sum()),
        top1_equal=int((one.logits.argmax(-1) == two.logits.argmax(-1)).sum()),
        shift=float((chosen[0] - chosen[1]).abs().max()),
        diverged=diverged,
        margins=margins,
    )


def _relative(side: Passed, other: Passed, scale: Passed) -> tuple[float, ...]:
    norm = torch.linalg.vector_norm
    layers = zip(side.stream, other.stream, scale.stream, strict=True)
    return tuple(float(norm(a.double() - b.double()) / norm(whole)) for a, b, whole in layers)


def _greedy(
    decoder: Decoder, start: Cache, last: torch.Tensor, ways: tuple[Way, Way], steps: int
) -> tuple[tuple[int | None, ...], tuple[float | None, ...]]:
    """Steps at which the greedy tokens of two ways part, and the margins there; both begin with the same cache."""
    prompts = last.shape[0]
    diverged: list[int | None] = [None] * prompts
    margins: list[float | None] = [None] * prompts
    sides = [(last, start), (last, start)]
    for step in range(steps):
        passed = [decoder.run(token, cache, way) for (token, cache), way in zip(sides, ways, strict=True)]
        sides = [(each.logits.argmax(-1), each.cache) for each in passed]
        best = passed[0].logprobs[:, -1].topk(2, -1).values
        for prompt in range(prompts):
            if diverged[prompt] is None and bool(sides[0][0][prompt] != sides[1][0][prompt]):
                diverged[prompt], margins[prompt] = step, float(best[prompt, 0] - best[prompt, 1])
    return tuple(diverged), tuple(margins)
