"""One look at a trace: what is slow, is the GPU idle, what is risky, what to do next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from importlib import resources

import msgspec
import xxhash

from proctor.trace.launches.kernel_choice import kernels_of
from proctor.trace.names import Answer, Risks, line_up, risks_of
from proctor.trace.overlap.antipatterns import Finding
from proctor.trace.reading.cache import cached, content_key
from proctor.trace.summary.steps import Step, steps
from proctor.trace.summary.time import Communication, DeviceTime, Gap, Times, times_of
from proctor.trace.trace import Trace
from proctor.trace.work.census import Census, Line, kept_census

_KIND = "summary-2"
_KERNELS = 200
"""More kernels than that are in the census, not in a summary."""


class Category(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of one category; `total` in ns, `share` of all kernels' time."""

    name: str
    calls: int
    total: int
    share: float


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel by demangled name: `total` and `mean` in ns, `share` of all kernels' time, and what it puts at risk."""

    name: str
    category: str
    calls: int
    total: int
    mean: float
    share: float
    run_to_run: Answer
    batch_invariant: Answer
    clue: str


class RiskShare(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of which a question of determinism is answered with no, or depends; a risk, never a verdict.

    Attributes:
        question: ``run to run`` or ``batch-invariant``.
        answer: ``no`` or ``depends``.
        kernels: how many kernels.
        share: of all kernels' time.
        dearest: the one that takes most time.
        reason: of that one.
    """

    question: str
    answer: Answer
    kernels: int
    share: float
    dearest: str
    reason: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace is about.

    Attributes:
        window_ns: first start to last end of anything on a GPU or in an API call.
        calls, total: of all kernels; `total` (ns) is a sum.
        copies, copied, copy_time: number, bytes and ns of copies.
        devices: how busy each GPU was.
        no_times: why that cannot be told, where it cannot.
        categories: the largest first; together all kernels.
        kernels: the largest first.
        gap: the class of idle gaps with the most time; None where there are none.
        communication: kernels that exchange data between GPUs; None where there are none.
        antipatterns: of transfers, those that the trace shows.
        risks: determinism, the largest share first.
        next: what to type next, and why.
    """

    window_ns: int
    calls: int = 0
    total: int = 0
    copies: int = 0
    copied: int = 0
    copy_time: int = 0
    devices: tuple[DeviceTime, ...] = ()
    no_times: str = ""
    categories: tuple[Category, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    gap: Gap | None = None
    communication: Communication | None = None
    antipatterns: tuple[Finding, ...] = ()
    risks: tuple[RiskShare, ...] = ()
    next: tuple[Step, ...] = ()


def summary(trace: Trace) -> Summary:
    """Sums a trace up; one without kernels gives what its notes say and what to capture next time.

    Raises:
        UserError: the file is damaged.
    """
    window = trace.window[1] - trace.window[0]
    if not trace.has("kernels"):
        return Summary(window_ns=window, next=steps(trace, None, Times(), ()))
    census = kept_census(trace)
    kernels = tuple(_kernel(line) for line in census.lines)
    known = kernels_of(trace)
    time = times_of(trace)
    return Summary(
        window_ns=window,
        calls=census.calls,
        total=census.total,
        copies=sum(copies.calls for copies in census.copies),
        copied=sum(copies.bytes for copies in census.copies),
        copy_time=sum(copies.total for copies in census.copies),
        devices=time.devices,
        no_times=time.why,
        categories=_categories(kernels, census.total),
        kernels=kernels[:_KERNELS],
        gap=time.gap,
        communication=time.communication,
        antipatterns=time.antipatterns,
        risks=tuple(_risks(census)),
        next=steps(trace, census, time, known),
    )


def kept_summary(trace: Trace) -> Summary:
    """`summary`, from the cache where the same file was summed up before."""
    return cached(content_key(trace.path), _kind(), lambda: summary(trace), type=Summary)


def _kind() -> str:
    """The cache's word for a summary: another one when the tables of names change."""
    digest = xxhash.xxh3_64()
    for table in ("lineup.toml", "risks.toml"):
        digest.update(resources.files("proctor.trace.names").joinpath(table).read_bytes())
    return f"{_KIND}-{digest.hexdigest()}"


def _kernel(line: Line) -> Kernel:
    risks = risks_of(line.key)
    return Kernel(
        name=line.key,
        category=line_up().place(line.key).category,
        calls=line.calls,
        total=line.total,
        mean=line.mean,
        share=line.share,
        run_to_run=risks.run_to_run.answer,
        batch_invariant=risks.batch_invariant.answer,
        clue=risks.clue,
    )


def _categories(kernels: Iterable[Kernel], total: int) -> tuple[Category, ...]:
    calls: dict[str, int] = defaultdict(int)
    times: dict[str, int] = defaultdict(int)
    for kernel in kernels:
        calls[kernel.category] += kernel.calls
        times[kernel.category] += kernel.total
    found = [
        Category(name=name, calls=calls[name], total=time, share=time / total if total else 0.0)
        for name, time in times.items()
    ]
    return tuple(sorted(found, key=lambda category: (-category.total, category.name)))


def _risks(census: Census) -> list[RiskShare]:
    found: dict[tuple[str, Answer], list[tuple[Line, Risks]]] = defaultdict(list)
    for line in census.lines:
        risks = risks_of(line.key)
        for question, risk in (("run to run", risks.run_to_run), ("batch-invariant", risks.batch_invariant)):
            if risk.answer in (Answer.NO, Answer.DEPENDS):
                found[question, risk.answer].append((line, risks))
    shares = []
    for (question, answer), lines in found.items():
        dearest, risks = lines[0]
        risk = risks.run_to_run if question == "run to run" else risks.batch_invariant
        shares.append(
            RiskShare(
                question=question,
                answer=answer,
                kernels=len(lines),
                share=sum(line.share for line, _ in lines),
                dearest=dearest.key,
                reason=risk.on or risk.reason,
            )
        )
    return sorted(shares, key=lambda share: (share.question != "run to run", share.answer is not Answer.NO))
