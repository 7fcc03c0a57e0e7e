"""Which processes a bench has, and what each of them times: more of them only for what is not decided yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from proctor.compile.collected import Collected
from proctor.compile.model import ANSWERS, ENCODER, Finding, Measured
from proctor.compile.orders import Options
from proctor.compile.verdict import verdict
from proctor.compile.words import counted, listed

_HOPE = 2
"""How many processes would decide is an estimate: up to so many times those that may be added something is open."""


class Sitting(NamedTuple):
    """A process to run.

    Attributes:
        number: of it, from 0.
        processes: there are now.
        only: what it times; empty: everything.
    """

    number: int
    processes: int
    only: tuple[str, ...] = ()


def sittings(options: Options, told: Collected) -> Iterator[Sitting]:
    """The processes of a bench, one after the other.

    Everything is timed in `Options.processes` of them. Then the figures are judged, and up to `Options.most_processes`
    time what is open and may be decided by so many. In between nothing is judged: with every look at the figures noise
    has another chance to pass for an effect.

    Args:
        options: how much is measured.
        told: what was measured so far; learns of the looks, and what the added processes are for.
    """
    most = options.most_processes
    told.looks = 2 if most > options.processes else 1
    yield from (Sitting(number, options.processes) for number in range(options.processes))
    added = still_open(told.measured(), most - options.processes) if told.looks > 1 else {}
    if not added:
        return
    processes = options.processes + max(added.values())
    told.subject["processes"] = processes
    told.note([f"{counted(max(added.values()), 'process')} more timed {listed(tuple(added))} only"])
    for number in range(options.processes, processes):
        yield Sitting(number, processes, tuple(added))


def still_open(measured: Measured, left: int) -> dict[str, int]:
    """What more processes may decide, and how many to add for it: one more than would just do.

    The encoder and the answers have everything compiled: they matter where all targets are to be compiled, or none.
    They are timed together, or the share of the one in the other would not be known.

    Args:
        measured: what was measured so far.
        left: processes that may be added.
    """
    found = verdict(measured)
    needed = {one.target: _needed(measured, one) for one in found.findings}
    open_ = {name: min(left, number + 1) for name, number in needed.items() if 0 < number <= _HOPE * left}
    if len(found.best) not in (0, len(measured.targets)):
        return {name: number for name, number in open_.items() if name in measured.targets}
    timed = {one.target for one in measured.timings}
    wholes = [name for name in (ENCODER, ANSWERS) if name in timed and {ENCODER, ANSWERS} & set(open_)]
    return {**open_, **{name: open_.get(name, 1) for name in wholes}}


def _needed(measured: Measured, one: Finding) -> int:
    """Processes; 0 where it is decided, or where more would not decide it."""
    if one.decision != "inconclusive" or not one.more_rounds:
        return 0
    rounds: dict[int, set[int]] = {}
    for timing in measured.timings:
        if timing.target == one.target and timing.round >= 0:
            rounds.setdefault(timing.process, set()).add(timing.round)
    return -(-one.more_rounds // max(map(len, rounds.values())))
