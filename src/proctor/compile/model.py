"""The words of a compile bench: what was measured, in which order, and what follows from it.

Arms are ``eager`` and ``compiled``. A target is a set of submodules that are compiled together, such as all blocks of
the vision encoder; ``encoder`` is the whole vision encoder and ``answers`` the engine end to end. A unit is what one
call of the encoder does at one shape: so a target's time in a unit is that of all its modules. Times are in seconds,
memory in bytes.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

ArmName = Literal["eager", "compiled"]
Cache = Literal["cold", "warm"]
Level = Literal["eager", "aot_eager", "inductor"]
"""How far a module was taken: traced (Dynamo), its graph made functional (AOTAutograd), code generated for it."""
ENCODER, ANSWERS = "encoder", "answers"


class Timing(msgspec.Struct, frozen=True):
    """One timed unit, or several calls timed at once.

    Attributes:
        target: name of the target, or `ENCODER`, or `ANSWERS`.
        shape: name of the shape, see `Shape.name`.
        arm: which.
        process: number of the process, from 0.
        round: number of the round in it; warm-up rounds are negative.
        seconds: of one unit (mean of `calls`).
        calls: how many were timed at once.
        clock: ``monotonic`` on a CPU, ``cuda-event`` on a GPU.
    """

    target: str
    shape: str
    arm: ArmName
    process: int
    round: int
    seconds: float
    calls: int = 1
    clock: Literal["monotonic", "cuda-event"] = "monotonic"


class Shape(msgspec.Struct, frozen=True):
    """One kind of unit that the workload has.

    Attributes:
        name: e.g. ``2 images of 224x448``.
        images: how many images the unit has.
        patches: rows of the encoder's input.
        rows: rows of the source that one unit stands for.
        share: share of the workload's rows that look like this, by the sample.
    """

    name: str
    images: int
    patches: int
    rows: int
    share: float


class Compilation(msgspec.Struct, frozen=True):
    """What compiling a target took, in one process.

    Attributes:
        cache: whether the compiler's cache on disk was empty before.
        seconds: first calls of the compiled arm at all shapes, less the time that the eager arm takes for them.
        graphs: unique graphs; None where the engine cannot be asked.
        breaks: graph breaks, each as one line with its reason.
        recompiles: each as one line with its reason.
        fallbacks: code objects that hit a limit and run eagerly since, as one line each.
        cache_hits, cache_misses: of the compiler's cache of graphs.
        memory: resident (CPU) or allocated (GPU) bytes that compiling added; None where it was not measured.
    """

    target: str
    process: int
    cache: Cache
    seconds: float
    graphs: int | None
    breaks: tuple[str, ...] = ()
    recompiles: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()
    cache_hits: int = 0
    cache_misses: int = 0
    memory: int | None = None


class Dispatch(msgspec.Struct, frozen=True):
    """What one call costs beyond the work in it.

    Attributes:
        seconds: of a compiled call of a module that does next to nothing, less the same call uncompiled.
        kernels: operators (CPU) or kernels (GPU) in one call of the target, by arm; None where no profiler is.
    """

    target: str
    seconds: float
    kernels: dict[str, int] | None = None


class Agreement(msgspec.Struct, frozen=True):
    """Outputs of a target at one shape: eager and compiled, each against the same in float64.

    Attributes:
        target: name of the target.
        shape: name of the shape; behind it, after a comma, what was changed of the captured call, such as
            ``1 image of 64x64, 4 rows fewer`` or ``…, without deepstack``.
        level: which backend.
        error_eager, error_compiled: root mean square of the difference from float64 over that of the reference, for
            the output that comes out worst; None where there is no reference, or no output to compare.
        bitwise: share of elements that are equal in both arms, bit by bit.
        largest: largest absolute difference between the arms; None where the outputs cannot be subtracted.
        steady_eager, steady_compiled: whether the same call again gave the same bits.
        passed: by the rule in `proctor.compile.rule`.
        reason: why not; where it passed, what could not be checked.
    """

    target: str
    shape: str
    level: Level
    error_eager: float | None
    error_compiled: float | None
    bitwise: float
    largest: float | None
    steady_eager: bool
    steady_compiled: bool
    passed: bool
    reason: str = ""


class ProbeAnswers(msgspec.Struct, frozen=True):
    """Answers of whole engines to probes over all shapes.

    Attributes:
        target: which target was compiled.
        probes: how many were asked.
        changed: those whose text differs between the arms: the probe's name and both texts, eager first. A failure
            stands as its message in square brackets.
        steady_eager, steady_compiled: whether each arm repeated its own answers.
        margins: for each of `changed`, log-probability between the two most likely tokens where they part, in the eager
            arm (nats); None where unknown. Near 0 is a near-tie, which rounding alone may turn.
        passed: by the rule in `proctor.compile.answers`.
        reason: why not.
    """

    target: str
    probes: int
    changed: tuple[tuple[str, str, str], ...]
    steady_eager: bool
    steady_compiled: bool
    margins: tuple[float | None, ...] = ()
    passed: bool = True
    reason: str = ""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a bench has seen; a verdict needs nothing else.

    Attributes:
        subject: model, engine, device, versions, threads: what a reader needs to know where this holds.
        targets: names of targets in the order of the model, with how many modules each has.
        shapes: of the workload.
        timings, compilations, dispatches, agreements, answers: see there.
        rows: rows that the planned run has.
        looks: how often the figures may have been judged while they were gathered: twice, where processes were to be
            added for what would be open at first.
        notes: one line each: what could not be measured and why.
    """

    subject: dict[str, Any]
    targets: dict[str, int]
    shapes: tuple[Shape, ...]
    timings: tuple[Timing, ...] = ()
    compilations: tuple[Compilation, ...] = ()
    dispatches: tuple[Dispatch, ...] = ()
    agreements: tuple[Agreement, ...] = ()
    answers: tuple[ProbeAnswers, ...] = ()
    rows: int | None = None
    looks: int = 1
    notes: tuple[str, ...] = ()


class Interval(msgspec.Struct, frozen=True):
    """A value with its 95 % interval.

    Attributes:
        low, high: None where no bound can be given: both for what was measured once, and the upper one of a break-even
            where the saving may be nothing.
    """

    value: float
    low: float | None = None
    high: float | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one target.

    Attributes:
        decision: ``keep``, ``skip`` or ``inconclusive``.
        reason: in one sentence, the deciding figure in it.
        eager, compiled: seconds of one unit, over the workload's shapes.
        saved: seconds that one unit saves (negative: loses).
        speedup: eager over compiled.
        break_even: by cache, rows after which compiling has paid; None where it never does, by the values alone.
        more_rounds: where it is inconclusive: rounds in further processes that would decide, at the noise and with the
            effect seen; None where none would, or nothing is known of the noise.
    """

    target: str
    decision: Literal["keep", "skip", "inconclusive"]
    reason: str
    eager: Interval | None = None
    compiled: Interval | None = None
    saved: Interval | None = None
    speedup: Interval | None = None
    break_even: dict[str, Interval | None] = {}
    more_rounds: int | None = None


class Subset(msgspec.Struct, frozen=True, kw_only=True):
    """What compiling some of the targets would save, by their own timings: units are the sum of their parts.

    Attributes:
        targets: compiled together.
        saves: seconds of one unit.
        break_even: as in `Finding`.
    """

    targets: tuple[str, ...]
    saves: Interval
    break_even: dict[str, Interval | None] = {}


class Amdahl(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the gain end to end is one that the encoder's share allows.

    Attributes:
        share: of the encoder in the time end to end.
        predicted: relative gain in throughput that the encoder's own gain makes, at that share.
        most: the same if the encoder took no time at all; None where it takes all the time.
        measured: relative gain in throughput that was measured.
        flagged: whether the measured gain lies above what the share allows.
        reason: one line.
    """

    share: float
    predicted: Interval
    most: float | None
    measured: Interval | None
    flagged: bool
    reason: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What to do.

    Attributes:
        sentence: the whole in one sentence.
        findings: by target, the whole encoder and the answers among them.
        best: the targets to compile.
        best_saves: seconds that the best subset saves in one unit of the encoder.
        unaccounted: by arm, seconds of one unit of the encoder that no target accounts for (negative: the targets take
            longer than the whole); empty where that is not known.
        amdahl: None where the encoder or the answers were not timed.
        worth_it: whether the run that is planned comes out ahead; by cache; None where its length is not known, or the
            interval of `net` covers zero.
        net: by cache, seconds that the planned run gains (negative: loses) with `net_of` compiled.
        net_of: the best subset; where that is empty, everything that the compiled arm had compiled.
        subsets: of the targets, those that save most first.
        flags: one line each: what makes the figures doubtful.
    """

    sentence: str
    findings: tuple[Finding, ...]
    best: tuple[str, ...]
    best_saves: float
    unaccounted: dict[str, float]
    amdahl: Amdahl | None
    worth_it: dict[str, bool | None]
    net: dict[str, Interval] = {}
    net_of: tuple[str, ...] = ()
    subsets: tuple[Subset, ...] = ()
    flags: tuple[str, ...] = ()
