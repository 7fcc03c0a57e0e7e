"""Reads a kernel's name by the grammar of the library that made it."""

from __future__ import annotations

from collections.abc import Callable

from proctor.trace.names.decoded import Decoded, Launch, Reading
from proctor.trace.names.grammars import (
    cublas,
    cutlass,
    flash,
    nccl,
    nvjet,
    serving,
    tensile,
    torch_native,
    triton,
    trtllm,
)
from proctor.trace.names.lineup import line_up
from proctor.trace.names.normal import normalise

Grammar = Callable[[str, Launch], Reading | None]

GRAMMARS: tuple[Grammar, ...] = (
    triton.read,
    nvjet.read,
    cublas.read,
    flash.read,
    cutlass.read,
    nccl.read,
    torch_native.read,
    serving.read,
    trtllm.read,
    tensile.read,
)
"""Tried in this order; the first that knows the name reads it."""

_CAP = 32_768


def decode(name: str, launch: Launch | None = None) -> Decoded:
    """What `name` says, and what `launch` confirms or denies of it.

    A name that no grammar knows gives a result without fields, with what the line-up says. The grammars see the first
    32,768 characters of the normal form.
    """
    normal = normalise(name)
    placed = line_up().place(name)
    facts = launch or Launch()
    for grammar in GRAMMARS:
        reading = grammar(normal[:_CAP], facts)
        if reading is not None:
            return Decoded(
                name=name,
                normal=normal,
                family=reading.family,
                summary=reading.summary,
                fields=tuple(reading.fields),
                evidence=tuple(reading.evidence),
                contradictions=tuple(reading.contradictions),
                source=reading.source,
                category=placed.category,
                rule=placed.rule,
            )
    return Decoded(name=name, normal=normal, category=placed.category, rule=placed.rule)
