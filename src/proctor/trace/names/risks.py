"""Determinism risks of a kernel: two separate questions, each with what it depends on, why, and who says so.

*Run to run*: the same bits on every run, with the same GPU, software and shapes. *Batch-invariant*: a row's bits do not
depend on what else is in the batch. A name can only point to a risk: neither the number of splits nor a stream-K mode
is in it, and the same kernel may run with atomics or without. Nothing here is a verdict.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from proctor.rows import UserError
from proctor.trace.names.lineup import capped, compiled, data_file, line_up
from proctor.trace.names.normal import Parts, parts


class Answer(StrEnum):
    """What is known of one question about one kernel."""

    YES = "yes"
    NO = "no"
    DEPENDS = "depends"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "n/a"
    """The question makes no sense here, as for kernels that write integers only."""


class Basis(StrEnum):
    """What an answer stands on."""

    STATED = "stated"
    """The library's documentation, its code or its maintainers say so."""
    REASONED = "reasoned"
    """It follows from how such kernels work; nobody states it for this one."""


class Risk(msgspec.Struct, frozen=True):
    """One answer about one kernel.

    Attributes:
        answer: what is known.
        on: what it depends on, where it does.
        reason: why.
        source: who says so.
        basis: whether that is stated or reasoned.
    """

    answer: Answer
    on: str = ""
    reason: str = ""
    source: str = ""
    basis: Basis = Basis.REASONED

    def __str__(self) -> str:
        return f"{self.answer}: {self.on}" if self.answer is Answer.DEPENDS else str(self.answer)


class Risks(msgspec.Struct, frozen=True):
    """Both answers about a kernel.

    Attributes:
        run_to_run: the same bits on every run?
        batch_invariant: the same bits whatever else is in the batch?
        clue: what makes the kernel a risk by its kind: ``split-K``, ``split-KV``, ``merge``, ``NVLS`` or ``atomics``;
            empty if none of these.
        entry: the entry of the table that was used; empty if none fits.
    """

    run_to_run: Risk
    batch_invariant: Risk
    clue: str = ""
    entry: str = ""


_NOTHING_KNOWN = Risk(Answer.UNKNOWN, reason="nothing is known about this kernel")
UNKNOWN = Risks(_NOTHING_KNOWN, _NOTHING_KNOWN)
"""The answers about a kernel that the table does not have."""

CLUES = ("split-K", "split-KV", "merge", "NVLS", "atomics")
_FIELDS = {"id", "rules", "pattern", "inside", "clue", "source", "run_to_run", "batch_invariant"}


class _Entry(NamedTuple):
    rules: frozenset[str]
    pattern: re.Pattern[str] | None
    inside: re.Pattern[str] | None
    risks: Risks

    def fits(self, rule: str, name: Parts) -> bool:
        if self.rules and rule not in self.rules:
            return False
        if self.pattern is not None and self.pattern.fullmatch(name.function) is None:
            return False
        return self.inside is None or self.inside.search(name.arguments) is not None


def risks_of(name: str) -> Risks:
    """What is known of a kernel's determinism, by its demangled name alone.

    >>> str(risks_of("ncclDevKernel_AllReduce_Sum_bf16_NVLS").run_to_run)
    'no'
    """
    rule = line_up().place(name).rule
    found = capped(parts(name))
    return next((entry.risks for entry in _entries() if entry.fits(rule, found)), UNKNOWN)


@lru_cache(maxsize=1)
def _entries() -> tuple[_Entry, ...]:
    known = {rule.id for rule in line_up().rules}
    return tuple(_entry(data, number, known) for number, data in enumerate(data_file("risks.toml")["risk"], start=1))


def _entry(data: Mapping[str, Any], number: int, known: set[str]) -> _Entry:
    rules = frozenset(data.get("rules", ()))
    problems = [*sorted(set(data) - _FIELDS), *sorted(rules - known)]
    if problems or not (rules or "pattern" in data) or data.get("clue", "") not in ("", *CLUES):
        raise UserError(f"not understood: {problems or data}", where=f"risks.toml, entry {number}")
    source = str(data["source"])
    risks = Risks(
        _risk(data["run_to_run"], source), _risk(data["batch_invariant"], source), data.get("clue", ""), data["id"]
    )
    pattern, inside = (
        compiled(data[field], "risks.toml", number, data["id"], field) if field in data else None
        for field in ("pattern", "inside")
    )
    return _Entry(rules, pattern, inside, risks)


def _risk(data: Mapping[str, str], source: str) -> Risk:
    answer = Answer(data["answer"])
    stated = Basis.REASONED if answer in (Answer.DEPENDS, Answer.UNKNOWN) else Basis.STATED
    return Risk(
        answer, data.get("on", ""), data["reason"], data.get("source", source), Basis(data.get("basis", stated))
    )
