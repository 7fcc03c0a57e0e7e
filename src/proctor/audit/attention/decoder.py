"""A decoder with random weights: enough of a language model to see what becomes of a difference in attention.

RMSNorm, attention, gated MLP, residual stream; no positions (the causal mask orders the tokens), embeddings not tied to
the head. Random weights give flat logits: flips of the most likely token are more frequent than in a trained model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch.nn.functional import linear, rms_norm, silu

from proctor.audit.attention.plan import Depth
from proctor.audit.attention.ways import Way

WIDENING = 3
"""Width of the MLP over that of the residual stream."""


class Layer(NamedTuple):
    """Weights of one layer, each (out, in)."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    out: torch.Tensor
    gate: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor


class Cache(NamedTuple):
    """Keys and values of the tokens so far, a pair for each layer, each (prompts, heads, tokens, dim)."""

    keys: tuple[torch.Tensor, ...]
    values: tuple[torch.Tensor, ...]

    def repeated(self, prompts: int) -> Cache:
        """The cache of one prompt as that of several that share it."""
        return Cache(*(tuple(each.expand(prompts, -1, -1, -1) for each in side) for side in self))

    def double(self) -> Cache:
        """In float64."""
        return Cache(*(tuple(each.double() for each in side) for side in self))


class Passed(NamedTuple):
    """What a pass over tokens gives.

    Attributes:
        logits: (prompts, tokens, vocabulary).
        stream: the residual stream after each layer, each (prompts, tokens, width).
        cache: with these tokens.
    """

    logits: torch.Tensor
    stream: tuple[torch.Tensor, ...]
    cache: Cache

    @property
    def logprobs(self) -> torch.Tensor:
        """(prompts, tokens, vocabulary) log-probabilities, in float32 (float64 for float64)."""
        wide = torch.float64 if self.logits.dtype == torch.float64 else torch.float32
        return torch.log_softmax(self.logits.to(wide), -1)


class Decoder:
    """The decoder.

    Args:
        shape: layers, heads, dim, vocabulary, seed and device; the same shape has the same weights but for rounding.
        dtype: number format of weights and results.
    """

    def __init__(self, shape: Depth, dtype: str) -> None:
        width = shape.heads * shape.dim
        draw = np.random.default_rng((shape.seed, shape.layers, width))
        kind = getattr(torch, dtype)

        def weight(rows: int, columns: int) -> torch.Tensor:
            drawn = draw.standard_normal((rows, columns), np.float32) * columns**-0.5
            return torch.from_numpy(drawn.astype(np.float32)).to(shape.device, kind)

        self.embedding = weight(shape.vocabulary, width) * width**0.5
        self.head = weight(shape.vocabulary, width)
        mlp = WIDENING * width
        sizes = [(width, width)] * 4 + [(mlp, width)] * 2 + [(width, mlp)]
        self.layers = [Layer(*(weight(*size) for size in sizes)) for _ in range(shape.layers)]
        self._shape = shape

    def double(self) -> Decoder:
        """The same weights, rounded as they are, in float64: a reference."""
        twin = object.__new__(Decoder)
        twin.embedding, twin.head = self.embedding.double(), self.head.double()
        twin.layers = [Layer(*(each.double() for each in layer)) for layer in self.layers]
        twin._shape = self._shape
        return twin

    def empty(self) -> Cache:
        """The cache of one prompt before its first token."""
        none = self.embedding.new_zeros((1, self._shape.heads, 0, self._shape.dim))
        return Cache((none,) * len(self.layers), (none,) * len(self.layers))

    def run(self, tokens: torch.Tensor, cache: Cache, way: Way) -> Passed:
        """Runs tokens after those in the cache.

        Args:
            tokens: (prompts, tokens) ids.
            cache: of as many prompts.
            way: how attention is computed.
        """
        stream, after = self.embedding[tokens], []
        kept: list[tuple[torch.Tensor, torch.Tensor]] = []
        for layer, keys, values in zip(self.layers, *cache, strict=True):
            normed = _normed(stream)
            new = [self._split(linear(normed, weight)) for weight in (layer.query, layer.key, layer.value)]
            keys, values = torch.cat((keys, new[1]), -2), torch.cat((values, new[2]), -2)
            attended = way(new[0], keys, values).transpose(1, 2).flatten(2)
            stream = stream + linear(attended, layer.out)
            normed = _normed(stream)
            stream = stream + linear(silu(linear(normed, layer.gate)) * linear(normed, layer.up), layer.down)
            kept.append((keys, values))
            after.append(stream)
        keys_, values_ = zip(*kept, strict=True)
        return Passed(linear(_normed(stream), self.head), tuple(after), Cache(tuple(keys_), tuple(values_)))

    def _split(self, projected: torch.Tensor) -> torch.Tensor:
        """(prompts, tokens, width) as (prompts, heads, tokens, dim)."""
        return projected.unflatten(-1, (self._shape.heads, self._shape.dim)).transpose(1, 2)


def _normed(stream: torch.Tensor) -> torch.Tensor:
    return rms_norm(stream, stream.shape[-1:], eps=1e-6)
