"""Changes of the spec that make a run fit: tried one after another, and each judged by the same arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from proctor.capacity.cluster import Cluster
from proctor.capacity.evaluate import Evaluation, Facts, evaluate
from proctor.capacity.figures import Check
from proctor.capacity.placement import last_that
from proctor.capacity.sequence import in_sequence
from proctor.spec import MdsSourceSpec, RunSpec, build_spec
from proctor.spec.engine import LocalEngineBase, VllmEngineSpec

_ROUNDS = 8
_SMALLEST_BLOCK_MB = 0.25
_SMALLEST_STORE_MB = 200
_MOST_RANKS = 64


class Change(NamedTuple):
    """One key of the spec, what it is and what it should be."""

    key: str
    before: Any
    after: Any


class Fewer(NamedTuple):
    """One key of the spec that may become any whole number below what it is: the largest that helps is wanted."""

    key: str
    before: int


def cure(spec: RunSpec, facts: Facts, cluster: Cluster) -> tuple[RunSpec, tuple[Change, ...]] | None:
    """A spec that fits, and how it differs from `spec`: no change that is not needed. None if nothing helps."""
    changes: dict[str, Change] = {}
    now = spec
    for _ in range(_ROUNDS):
        found = evaluate(now, facts, cluster)
        if not found.failing:
            return _needed(spec, changes, facts, cluster)
        check, before = found.failing[0], now
        for proposed in _cures(check, now, found, facts):
            change = _largest(proposed, check, now, facts, cluster) if isinstance(proposed, Fewer) else proposed
            now = apply(now, [change])
            kept = changes.get(change.key)
            changes[change.key] = change if kept is None else kept._replace(after=change.after)
            if _key(check) not in map(_key, evaluate(now, facts, cluster).failing):
                break
        if now is before:
            return None
    return None


def apply(spec: RunSpec, changes: list[Change]) -> RunSpec:
    """`spec` with the changed keys."""
    data = spec.model_dump(mode="json")
    for change in changes:
        *parents, last = change.key.split(".")
        holder = data
        for name in parents:
            holder = holder[name]
        holder[last] = change.after
    return build_spec(data)


def _largest(proposed: Fewer, check: Check, spec: RunSpec, facts: Facts, cluster: Cluster) -> Change:
    """The largest number with which the check passes, or 1; found by halves, as a smaller one never fails it again."""

    def passes(value: int) -> bool:
        changed = apply(spec, [Change(proposed.key, proposed.before, value)])
        return _key(check) not in map(_key, evaluate(changed, facts, cluster).failing)

    return Change(proposed.key, proposed.before, last_that(passes, 1, proposed.before - 1))


def _key(check: Check) -> tuple[str, str]:
    return check.what, check.where


def _needed(
    spec: RunSpec, changes: dict[str, Change], facts: Facts, cluster: Cluster
) -> tuple[RunSpec, tuple[Change, ...]]:
    """Leaves out, one by one, what is not needed after all."""
    kept = list(changes.values())
    for change in list(kept):
        fewer = [other for other in kept if other is not change]
        if not evaluate(apply(spec, fewer), facts, cluster).failing:
            kept = fewer
    return apply(spec, kept), tuple(kept)


_Cures = Callable[[RunSpec, Evaluation, Facts], Iterator[Change | Fewer]]


def _cures(check: Check, spec: RunSpec, found: Evaluation, facts: Facts) -> Iterator[Change | Fewer]:
    cures: dict[str, tuple[_Cures, ...]] = {
        "cpu": (_fewer_engines,),
        "gpu": (_fewer_engines,),
        "engines": (_smaller_store, _nothing_ahead, _fewer_engines, _smaller_blocks, _fewer_in_flight),
        "memory": (_smaller_store, _nothing_ahead, _smaller_blocks, _fewer_in_flight, _as_few_engines),
        "object store": (_smaller_blocks, _fewer_in_flight, _as_few_engines),
        "gpu memory": (_shorter_rows, _more_ranks),
        "disk": (_smaller_cache,),
    }
    for kind in cures.get(check.what, ()):
        yield from kind(spec, found, facts)


def _fewer_engines(spec: RunSpec, found: Evaluation, facts: Facts) -> Iterator[Change]:
    """As many as find a place."""
    del facts
    if 1 <= found.engines < spec.engine.replicas:
        yield Change("engine.replicas", spec.engine.replicas, found.engines)


def _as_few_engines(spec: RunSpec, found: Evaluation, facts: Facts) -> Iterator[Fewer]:
    del found, facts
    if spec.engine.replicas > 1:
        yield Fewer("engine.replicas", spec.engine.replicas)


def _smaller_store(spec: RunSpec, found: Evaluation, facts: Facts) -> Iterator[Change]:
    """Gives memory back that the blocks in flight do not need; only a Ray of the run's own can be told."""
    del facts
    told = spec.capacity is not None and spec.capacity.object_store_mb is not None
    if spec.ray.address is not None or told or sum(share.count for share in found.shares) > 1:
        return
    need = max(_SMALLEST_STORE_MB, math.ceil(max(share.store_need for share in found.shares) * 2 / 1e6))
    have = min(share.node.object_store for share in found.shares) / 1e6
    if need < have:
        yield Change("ray.object_store_mb", spec.ray.object_store_mb, need)


def _nothing_ahead(spec: RunSpec, found: Evaluation, facts: Facts) -> Iterator[Change]:
    """Without a second engine beside each one, and then without the next checkpoint in memory."""
    del found, facts
    if not in_sequence(spec):
        return
    if spec.engine.reference == "beside":
        yield Change("engine.reference", "beside", "first")
    yield Change("engine.mode", "sequential", "restart")


def _smaller_blocks(spec: RunSpec, found: Evaluation, facts: Facts) -> Iterator[Change]:
    del found
    size = spec.stream.block_mb
    while size > _SMALLEST_BLOCK_MB and size * 1e6 > facts.sample.largest_row:
        size /= 2
        yield Change("stream.block_mb", spec.stream.block_mb, size)


def _fewer_in_flight(spec: RunSpec, found: Evaluation, facts: Facts) -> Iterator[Fewer]:
    del found, facts
    if spec.stream.blocks_in_flight > 1:
        yield Fewer("stream.blocks_in_flight", spec.stream.blocks_in_flight)


def _smaller_cache(spec: RunSpec, found: Evaluation, facts: Facts) -> Iterator[Change]:
    """Four fifths of what the fullest disk has left; without a cache shards are fetched again."""
    del facts
    if not isinstance(spec.source, MdsSourceSpec):
        return
    missing = [(c.need or 0.0) - (c.have or 0.0) for c in found.failing if c.what == "disk"]
    left = spec.source.cache_gb * 1e9 - max(missing)
    if left >= 0:
        yield Change("source.cache_gb", spec.source.cache_gb, math.floor(8 * left / 1e9) / 10)


def _shorter_rows(spec: RunSpec, found: Evaluation, facts: Facts) -> Iterator[Change]:
    """No more tokens than rows like the sampled ones need: the cache must hold one row of full length."""
    del facts
    engine = spec.engine
    for fit in found.gpu:
        if isinstance(engine, LocalEngineBase) and fit.enough_len is not None and fit.enough_len < fit.max_len:
            yield Change("engine.max_model_len", engine.max_model_len, fit.enough_len)


def _more_ranks(spec: RunSpec, found: Evaluation, facts: Facts) -> Iterator[Change]:
    """Spreads the model over more GPUs of a node."""
    del facts
    engine = spec.engine
    most = max((share.node.gpus for share in found.shares), default=0)
    if not isinstance(engine, VllmEngineSpec) or not found.gpu:
        return
    ranks = found.gpu[0].ranks
    if engine.gpus_per_replica >= ranks:
        ranks *= 2
    while ranks <= min(most, _MOST_RANKS):
        yield Change("engine.options.tensor_parallel_size", engine.options.get("tensor_parallel_size"), ranks)
        yield Change("engine.gpus_per_replica", engine.gpus_per_replica, float(ranks))
        ranks *= 2
