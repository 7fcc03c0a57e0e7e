"""What to type next: the command that answers the question a trace's figures raise."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from proctor.trace.launches.kernel_choice import Kernel
from proctor.trace.model import Severity
from proctor.trace.names import short_name
from proctor.trace.summary.time import Times
from proctor.trace.trace import Trace
from proctor.trace.work.census import Census

_IDLE = 0.05
_EXPOSED = 0.01
_COPIES = 0.05
_TINY_NS = 10_000
_MANY = 0.5
_FEW_CALLS = 100
"""With fewer launches than that there is no telling what most of them are like."""


FILE, OTHER = "FILE", "OTHER"
"""Stand in a step's words for the trace itself and for another one."""


class Step(msgspec.Struct, frozen=True):
    """What to do next, and why.

    Attributes:
        words: of a command after ``proctor trace``, with `FILE` for the trace; empty where it is no command.
        why: what it answers; without words, what to do.
    """

    words: tuple[str, ...]
    why: str

    def command(self, file: Path) -> str:
        """The command for a shell; empty if it is none."""
        if not self.words:
            return ""
        words = (str(file) if word == FILE else word for word in self.words)
        return shlex.join(["proctor", "trace", *words])


def steps(trace: Trace, census: Census | None, times: Times, kernels: Sequence[Kernel]) -> tuple[Step, ...]:
    """What the figures ask for, the most promising first."""
    if census is None:
        return tuple(_without_kernels(trace))
    found = [*_about_time(census, times), *_about_kernels(census, kernels), *_about_structure(trace)]
    found.append(Step(("diff", FILE, OTHER), "against a trace from before or after a change"))
    return tuple(found)


def _without_kernels(trace: Trace) -> Iterator[Step]:
    for note in trace.notes:
        if note.severity is Severity.ERROR and note.advice:
            yield Step((), note.advice)
    if trace.has("annotations") or trace.has("calls"):
        yield Step(("timeline", FILE), "what the CPU did")


def _about_time(census: Census, times: Times) -> Iterator[Step]:
    idle = max((device.share for device in times.devices), default=0.0)
    if idle >= _IDLE and times.gap is not None:
        why = f"a GPU idles {idle:.0%} of its time; most of the longest gaps: {times.gap.cause}"
        yield Step(("gaps", FILE), why)
    talk = times.communication
    if talk is not None and talk.share * (talk.exposed / talk.total if talk.total else 0) >= _EXPOSED:
        why = f"{talk.exposed / talk.total:.0%} of communication is not hidden by other kernels"
        yield Step(("overlap", FILE), why)
    copied = sum(copies.total for copies in census.copies)
    busy = sum(device.busy + device.idle for device in times.devices)
    if talk is None and copied >= _COPIES * max(busy, 1):
        yield Step(("overlap", FILE), f"copies take {copied / 1e6:,.1f} ms: are they hidden?")
    elif talk is None and times.antipatterns:
        yield Step(("overlap", FILE), f"transfers: {', '.join(each.name for each in times.antipatterns)}")


def _about_kernels(census: Census, kernels: Sequence[Kernel]) -> Iterator[Step]:
    first = census.lines[0]
    number = next((kernel.id for kernel in kernels if kernel.name == first.key), None)
    if number is not None:
        launches = "1 launch" if first.calls == 1 else f"{first.calls:,} launches"
        why = f"{short_name(first.key, 40)} takes {first.share:.0%} of kernel time in {launches}"
        yield Step(("stakeout", FILE, f"#{number}"), why)
    tiny = sum(line.calls for line in census.lines if line.mean < _TINY_NS)
    if census.calls >= _FEW_CALLS and tiny >= _MANY * census.calls:
        why = f"{tiny / census.calls:.0%} of launches take less than {_TINY_NS // 1000} us: launching may cost more"
        yield Step(("census", FILE), why)


def _about_structure(trace: Trace) -> Iterator[Step]:
    if trace.has("annotations"):
        yield Step(("census", FILE, "--by", "nvtx"), "which part of the program the time belongs to")
