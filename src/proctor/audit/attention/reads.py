"""How many tokens' keys and values attention reads: what a split at a shared prefix saves, counted in tokens.

Tokens, not time. Whether fewer reads are faster depends on caches, on how many blocks a GPU runs at once, and on the
second kernel and the merge that a split adds.
"""

from __future__ import annotations

import msgspec

from proctor.audit.attention.gate import TILE
from proctor.rows import UserError


class Reads(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens whose keys and values are read in one decoding step of one layer, for one head.

    Attributes:
        single: each request reads its whole context.
        split: the prefix is read once for every tile of 128 requests, and each request reads its own suffix.
        prefix_reads: of `single`, those that read the prefix.
        redundant: of `single`, those that read the prefix once more: what a split saves.
        partials: rows of partial results that a split writes and reads again; `single` has none.
    """

    prefix: int
    suffix: int
    requests: int
    single: int
    split: int
    prefix_reads: int
    redundant: int
    partials: int

    @property
    def ratio(self) -> float:
        """How many times as many tokens the single pass reads."""
        return self.single / self.split

    @property
    def redundant_share(self) -> float:
        """Redundant reads among all reads of the single pass."""
        return self.redundant / self.single

    @property
    def redundant_of_prefix(self) -> float:
        """Redundant reads among the reads of the prefix."""
        return self.redundant / self.prefix_reads if self.prefix_reads else 0.0


def kv_reads(prefix: int, suffix: int, requests: int) -> Reads:
    """Reads of a step in which `requests` decode one token each.

    Args:
        prefix: tokens that all share.
        suffix: tokens of its own that each has (the mean, where they differ).
        requests: how many.

    Raises:
        UserError: a count below 1, or nothing to read.
    """
    if requests < 1 or prefix < 0 or suffix < 0 or prefix + suffix < 1:
        raise UserError("nothing to count", where="KV reads", fix="at least one request with at least one token")
    passes = -(-requests // TILE)
    single, split = requests * (prefix + suffix), passes * prefix + requests * suffix
    return Reads(
        prefix=prefix,
        suffix=suffix,
        requests=requests,
        single=single,
        split=split,
        prefix_reads=requests * prefix,
        redundant=(requests - passes) * prefix,
        partials=2 * requests,
    )
