"""Does the difference go away when attention is no longer split? Keys and values of earlier tokens keep it."""

from __future__ import annotations

import msgspec
import torch

from proctor.audit.attention.decoder import Cache, Decoder
from proctor.audit.attention.depth import tokens
from proctor.audit.attention.plan import Depth, check_counts
from proctor.audit.attention.torch_setup import full_precision
from proctor.audit.attention.ways import Way, single, split_at

TOY = Depth(dtypes=("float32",), layers=4, heads=2, vocabulary=512, prompts=3, positions=8)
"""Three prompts, 8 steps of each kind: 24 positions."""


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """Decoding steps against the same steps of a run that never split; the same tokens in both.

    Attributes:
        positions: one for each prompt and step.
        equal: positions whose logits are all equal, bit by bit.
        logits_equal: share of logits that are.
        logprob_equal: positions whose log-probability of the next token is. More than `equal`: near -6 a float32 is as
            coarse (5e-7) as the differences of a small model, and hides some.
        shift: largest absolute difference of those log-probabilities (nats).
    """

    positions: int
    equal: int
    logits_equal: float
    logprob_equal: int
    shift: float


class SwitchedBack(msgspec.Struct, frozen=True, kw_only=True):
    """A run that splits attention and then no longer does.

    Attributes:
        dtype: number format.
        during: steps in which attention is split.
        after: steps after that, in a single pass again.
        restored: the same, but with the keys and values of the tokens of `during` replaced by those of the run that
            never split. Equal where nothing but them keeps the difference.
    """

    dtype: str
    during: Steps
    after: Steps
    restored: Steps


def switch_back(shape: Depth = TOY) -> tuple[SwitchedBack, ...]:
    """Decodes `shape.positions` steps with attention split at the prefix, then as many in a single pass.

    Raises:
        UserError: sizes that cannot be.
    """
    check_counts(shape)
    with full_precision(shape.device):
        return tuple(_switched(shape, dtype) for dtype in shape.dtypes)


def _switched(shape: Depth, dtype: str) -> SwitchedBack:
    decoder, count = Decoder(shape, dtype), shape.positions
    prefix, given = tokens(shape, 2 * count + 1)
    start = decoder.run(prefix, decoder.empty(), single).cache.repeated(shape.prompts)
    first, second = given[:, : count + 1], given[:, count:]
    plain, clean = _forced(decoder, first, start, single)
    split, touched = _forced(decoder, first, start, split_at([shape.prefix]))
    grafted = Cache(*(_grafted(*sides, at=shape.prefix) for sides in zip(touched, clean, strict=True)))
    later, after, restored = (_forced(decoder, second, cache, single)[0] for cache in (clean, touched, grafted))
    return SwitchedBack(
        dtype=dtype,
        during=_compared(split, plain, first[:, 1:]),
        after=_compared(after, later, second[:, 1:]),
        restored=_compared(restored, later, second[:, 1:]),
    )


def _forced(decoder: Decoder, given: torch.Tensor, cache: Cache, way: Way) -> tuple[torch.Tensor, Cache]:
    """Logits, (prompts, steps, vocabulary), of one token a step; and the cache after them."""
    logits = []
    for step in range(given.shape[1] - 1):
        passed = decoder.run(given[:, step : step + 1], cache, way)
        cache = passed.cache
        logits.append(passed.logits[:, -1])
    return torch.stack(logits, 1), cache


def _grafted(onto: tuple[torch.Tensor, ...], source: tuple[torch.Tensor, ...], *, at: int) -> tuple[torch.Tensor, ...]:
    """One side of a cache with what follows token `at` taken from another."""
    pairs = zip(onto, source, strict=True)
    return tuple(torch.cat((mine[..., :at, :], other[..., at:, :]), -2) for mine, other in pairs)


def _compared(logits: torch.Tensor, against: torch.Tensor, chosen: torch.Tensor) -> Steps:
    wide = torch.float64 if logits.dtype == torch.float64 else torch.float32
    told = [torch.log_softmax(each.to(wide), -1).gather(-1, chosen[..., None]) for each in (logits, against)]
    same = logits == against
    return Steps(
        positions=chosen.numel(),
        equal=int(same.all(-1).sum()),
        logits_equal=float(same.double().mean()),
        logprob_equal=int((told[0] == told[1]).sum()),
        shift=float((told[0] - told[1]).abs().max()),
    )
