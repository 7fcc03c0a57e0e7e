"""Ways to compute attention against a single pass: by number format, length, prefix, split and chunk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec
import numpy as np
import torch

from proctor.audit.attention.difference import Difference, Error, difference, error
from proctor.audit.attention.kernel import exact
from proctor.audit.attention.plan import Sizes, check_counts
from proctor.audit.attention.torch_setup import full_precision
from proctor.audit.attention.ways import Way, chunked, even_cuts, single, split_at

Phase = Literal["extend", "decode", "prefill"]
HALVES = ("bfloat16", "float16")


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One way against a single pass.

    Attributes:
        phase: ``extend`` (some queries at the end), ``decode`` (one query) or ``prefill`` (in chunks or not).
        way: in words; ``single pass again`` is the control and has to be equal.
        dtype: number format.
        length, queries: keys and queries.
        prefix, splits, chunk: what applies to this way; None else.
        apart: the way from the single pass.
        single, other: errors of both against float64.
    """

    phase: Phase
    way: str
    dtype: str
    length: int
    queries: int
    prefix: int | None = None
    splits: int | None = None
    chunk: int | None = None
    apart: Difference
    single: Error
    other: Error

    @property
    def ratio(self) -> float | None:
        """How many times as large the error of this way is (relative error); None where the single pass has none."""
        return self.other.relative / self.single.relative if self.single.relative else None


class _Try(NamedTuple):
    phase: Phase
    words: str
    way: Way
    prefix: int | None = None
    splits: int | None = None
    chunk: int | None = None


class _Inputs(NamedTuple):
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor


def measure(sizes: Sizes) -> Iterator[Measured]:
    """Measures every way that `sizes` asks for, one after the other.

    Raises:
        UserError: sizes that cannot be.
    """
    check_counts(sizes)
    for length in sizes.lengths:
        drawn = _drawn(sizes, length)
        for dtype in sizes.dtypes:
            with full_precision(sizes.device):  # not around the yield: it would hold for the caller, too
                rounded = _Inputs(*(each.to(sizes.device, getattr(torch, dtype)) for each in drawn))
                found = list(_phases(sizes, length, dtype, rounded))
            yield from found


def _drawn(sizes: Sizes, length: int) -> _Inputs:
    """Standard normal inputs; the same for every number format and device."""
    draw = np.random.default_rng((sizes.seed, length))
    shapes = (max(sizes.queries, min(sizes.prefill, length)), length, length)
    return _Inputs(*(torch.from_numpy(draw.standard_normal((sizes.heads, n, sizes.dim), np.float32)) for n in shapes))


def _phases(sizes: Sizes, length: int, dtype: str, given: _Inputs) -> Iterator[Measured]:
    queries: dict[Phase, int] = {"extend": sizes.queries, "decode": 1, "prefill": min(sizes.prefill, length)}
    for phase, count in queries.items():
        query = given.query[:, -count:]
        true = exact(query, given.key, given.value, sees=length - count + 1)
        one = single(query, given.key, given.value)
        for attempt in _tries(sizes, phase, length, count, halves=dtype in HALVES):
            other = attempt.way(query, given.key, given.value)
            yield Measured(
                phase=phase,
                way=attempt.words,
                dtype=dtype,
                length=length,
                queries=count,
                prefix=attempt.prefix,
                splits=attempt.splits,
                chunk=attempt.chunk,
                apart=difference(other, one, true),
                single=error(one, true),
                other=error(other, true),
            )


def _tries(sizes: Sizes, phase: Phase, length: int, queries: int, *, halves: bool) -> Iterator[_Try]:
    if phase == "prefill":
        for chunk in (chunk for chunk in sizes.chunks if chunk < queries):
            yield _Try(phase, "chunks", chunked(chunk), chunk=chunk)
            yield _Try(phase, "chunks, context merged", chunked(chunk, merged=True), chunk=chunk)
        return
    yield _Try(phase, "single pass again", single)
    for prefix in (prefix for prefix in sizes.prefixes if prefix <= length - queries):
        yield _Try(phase, "split at prefix", split_at([prefix]), prefix=prefix)
    for splits in sizes.splits:
        cuts = even_cuts(length, splits)
        yield _Try(phase, "split-KV", split_at(cuts), splits=len(cuts) + 1)
        if halves:  # in the others partial results are stored as they are computed
            yield _Try(phase, "split-KV, float32 partials", split_at(cuts, wide_partials=True), splits=len(cuts) + 1)
