"""Rules about which kernels ran: a merge step, split-K, another tile, another library, another type, an added pass."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable

from proctor.trace.diff.changes import Change
from proctor.trace.diff.comparable import Basis
from proctor.trace.diff.evidence import (
    NOTHING,
    Clue,
    Evidence,
    Finding,
    Rule,
    Seen,
    launches,
    milliseconds,
    time_of,
    whole,
)
from proctor.trace.diff.sides import ATTENTION, GEMM, MERGE, SPLIT_K
from proctor.trace.diff.traits import CUBLAS, Traits, traits
from proctor.trace.names import short_name

_IN_KERNEL = re.compile(r"split_k_kernel|(?<![A-Za-z])splitK(?![a-z])")
"""cuBLAS's matrix products that are split along K within one kernel, or name that they are."""

BATCH_INVARIANT = re.compile(r"(?:^|::)matmul_kernel_persistent|(?:^|::)bmm_kernel(?!\w)")
"""Triton matmuls of vLLM's batch-invariant mode (``model_executor/layers/batch_invariant.py``)."""

_MOST = 0.5
_NONE = 0.02
_FEW_SHOWN = 3
_LAUNCH = 0.5
"""An added step adds at least one launch to each repetition."""


def _presence(e: Evidence, id_: str, what: str, fits: Callable[[Change], object]) -> tuple[Seen, Clue]:
    seen = e.seen(fits)
    clue = Clue(
        id=id_,
        what=f"{what}: {seen.names}",
        a=launches(seen.a),
        b=launches(seen.b),
        basis=Basis.NAMES,
        covers=whole(seen.changes),
    )
    return seen, clue


def _split_attention(e: Evidence) -> Finding:
    seen, clue = _presence(e, "merge_kernel", "kernels that merge partial attention", lambda c: c.category == MERGE)
    if not seen.changes:
        attends = bool(e.in_category(ATTENTION))
        why = "no merge kernel on either side, as far as names tell (a split merged inside one kernel has none)"
        return Finding(ruled_out=why) if attends else NOTHING
    if seen.a and seen.b:
        return Finding(ruled_out="merge kernels ran on both sides: attention was split before, too")
    counted = _equal_counts(e)
    against = (counted,) if counted is not None else ()
    which = "a merge kernel appears in B only" if seen.b else "the merge kernel of A is gone from B"
    return Finding((clue,), against, says=f"split attention: {which}")


def _split_k(e: Evidence) -> Finding:
    seen, clue = _presence(
        e, "split_k_kernel", "split-K kernels", lambda c: c.category == SPLIT_K or _IN_KERNEL.search(c.name)
    )
    if not seen.changes:
        return Finding(ruled_out="no split-K kernel on either side, as far as names tell") if _gemms(e) else NOTHING
    if seen.a and seen.b:
        return NOTHING
    which = "split-K matrix products appear in B" if seen.b else "split-K matrix products are gone from B"
    return Finding((clue,), says=f"{which}: the library picks them by shape")


def _gemms(e: Evidence) -> bool:
    return bool(e.in_category(GEMM))


def _gemm_config(e: Evidence) -> Finding:
    """Tiles of one library's matrix products that only A has, and others that only B has."""
    tiles: dict[str, tuple[list[Change], list[Change]]] = defaultdict(lambda: ([], []))
    for position, side in enumerate("ab"):
        for change in e.only(side):
            found = traits(change.name)
            if change.category == GEMM and found.tile:
                tiles[found.library][position].append(change)
    clues = [
        Clue(
            id=f"tiles:{library}",
            what=f"{library} matrix products of a tile that the other side does not have",
            a=_tiles(gone),
            b=_tiles(new),
            basis=Basis.NAMES,
            covers=whole((*gone, *new)),
        )
        for library, (gone, new) in tiles.items()
        if gone and new and _tile_set(gone) != _tile_set(new)
    ]
    if clues:
        return Finding(tuple(clues))
    known = [change for change in e.in_category(GEMM) if traits(change.name).tile]
    if known and all(change.a and change.b for change in known):
        return Finding(ruled_out="the same tiles of matrix products ran on both sides")
    return NOTHING


def _tile_set(changes: list[Change]) -> set[str]:
    return {traits(change.name).tile for change in changes}


def _tiles(changes: list[Change]) -> str:
    found = sorted(_tile_set(changes))
    more = f" and {len(found) - _FEW_SHOWN} more" if len(found) > _FEW_SHOWN else ""
    return f"{', '.join(found[:_FEW_SHOWN])}{more} ({milliseconds(sum(map(time_of, changes)))})"


def _library_switch(e: Evidence) -> Finding:
    clues = []
    for category in (GEMM, ATTENTION):
        a, b = _by_library(e, category, "a"), _by_library(e, category, "b")
        if not a or not b:
            continue
        main_a, main_b = max(a, key=a.__getitem__), max(b, key=b.__getitem__)
        shares = (_share(a, main_a), _share(b, main_b), _share(b, main_a), _share(a, main_b))
        if min(shares[:2]) < _MOST or max(shares[2:]) > _NONE:
            continue
        chosen = [c for c in e.in_category(category) if traits(c.name).library in (main_a, main_b)]
        clues.append(
            Clue(
                id=f"library:{category}",
                what=f"library of most {category} time",
                a=f"{main_a} ({shares[0]:.0%}), {main_b} {shares[3]:.0%}",
                b=f"{main_b} ({shares[1]:.0%}), {main_a} {shares[2]:.0%}",
                basis=Basis.NAMES,
                covers=whole(chosen),
            )
        )
    return Finding(tuple(clues))


def _by_library(e: Evidence, category: str, side: str) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for change in e.in_category(category):
        tally = change.a if side == "a" else change.b
        found[traits(change.name).library] += tally.total_ns if tally else 0
    return {library: time for library, time in found.items() if time and library}


def _share(times: dict[str, int], library: str) -> float:
    return times.get(library, 0) / sum(times.values())


def _batch_invariant(e: Evidence) -> Finding:
    seen, clue = _presence(
        e, "persistent_matmul", "persistent Triton matmuls", lambda c: BATCH_INVARIANT.search(c.name)
    )
    if not seen.changes:
        why = "no persistent Triton matmul on either side: vLLM's batch-invariant mode replaces matrix products by it"
        return Finding(ruled_out=why) if _gemms(e) else NOTHING
    if (seen.a and seen.b) or not seen.b:
        return NOTHING
    a, b = _cublas_time(e, "a"), _cublas_time(e, "b")
    cublas = Clue(
        id="cublas_products",
        what="matrix products of cuBLAS, which that mode replaces",
        a=milliseconds(a),
        b=milliseconds(b),
        basis=Basis.NAMES,
        covers=whole(c for c in e.in_category(GEMM) if traits(c.name).library in CUBLAS),
    )
    if not a:
        return NOTHING
    return Finding((clue, cublas)) if not b else Finding((clue,), (cublas,))


def _cublas_time(e: Evidence, side: str) -> int:
    return sum(time for library, time in _by_library(e, GEMM, side).items() if library in CUBLAS)


def _precision(e: Evidence) -> Finding:
    shares = [_full_precision(e, side) for side in "ab"]
    if None in shares:
        return NOTHING
    one, two = (share for share in shares if share is not None)
    clue = Clue(
        id="operand_types",
        what="share of matrix-product time with 32-bit operands, of those whose names tell",
        a=f"{one:.0%}",
        b=f"{two:.0%}",
        basis=Basis.NAMES,
        covers=whole(e.in_category(GEMM)),
    )
    if one <= 0.1 and two >= _MOST:
        return Finding((clue,))
    if two <= 0.1 and one >= _MOST:
        return Finding((clue,), says="matrix products run in 16 or 8 bits instead of 32")
    same = abs(one - two) <= 0.1
    return Finding(ruled_out=f"operand types are the same: {one:.0%} and {two:.0%} in 32 bits") if same else NOTHING


def _full_precision(e: Evidence, side: str) -> float | None:
    total = full = 0
    for change in e.in_category(GEMM):
        tally = change.a if side == "a" else change.b
        found: Traits = traits(change.name)
        if tally is not None and found.operands:
            total += tally.total_ns
            full += tally.total_ns * (found.operands == "fp32")
    return full / total if total else None


def _added_pass(e: Evidence) -> Finding:
    new = e.only("b")
    counted = _equal_counts(e)
    if not new and all(change.a and change.b and e.same_count(change.a.calls, change.b.calls) for change in e.kernels):
        each = " per repetition" if e.iterations and e.iterations.a != e.iterations.b else ""
        return Finding(ruled_out=f"both sides launch the same kernels, each as often{each}")
    categories_gone = {change.category for change in e.only("a")}
    added = [change for change in new if change.category not in categories_gone]
    if not added:
        return NOTHING
    some = ", ".join(short_name(change.name, 60) for change in added[:_FEW_SHOWN])
    clue = Clue(
        id="new_kernels",
        what=f"kernels of B only, in categories that lost none: {some}",
        a=launches(0),
        b=launches(sum(change.b.calls for change in added if change.b)),
        basis=Basis.NAMES,
        covers=whole(added),
    )
    return Finding((clue,), (counted,) if counted is not None else ())


def _equal_counts(e: Evidence) -> Clue | None:
    """A clue that as many kernels ran on both sides, if they did: to less than half a launch per repetition."""
    a = sum(change.a.calls for change in e.kernels if change.a)
    b = sum(change.b.calls for change in e.kernels if change.b)
    rates = e.rates(a, b)
    if abs(rates[1] - rates[0]) >= _LAUNCH:
        return None
    return Clue(
        id="equal_counts", what="kernels launched: the same number", a=launches(a), b=launches(b), basis=Basis.COUNTS
    )


NAME_RULES = (
    Rule("split_attention", "split attention", (Basis.NAMES,), _split_attention),
    Rule(
        "batch_invariant",
        "batch-invariant mode: persistent Triton matmuls replace those of cuBLAS",
        (Basis.NAMES,),
        _batch_invariant,
    ),
    Rule("library_switch", "the work moved to another library", (Basis.NAMES,), _library_switch),
    Rule("precision", "matrix products run in 32 bits instead of 16 or 8", (Basis.NAMES,), _precision),
    Rule("split_k", "split-K matrix products", (Basis.NAMES,), _split_k),
    Rule(
        "gemm_config",
        "the same library chose other tiles for its matrix products: another shape, version or heuristic",
        (Basis.NAMES,),
        _gemm_config,
    ),
    Rule("added_pass", "work was added: new kernels that replace none", (Basis.NAMES, Basis.COUNTS), _added_pass),
)
"""What brings others with it comes first: another library or type has other tiles, and not the other way round."""
