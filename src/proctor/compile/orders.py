"""What travels between a bench and its processes, as JSON or MessagePack: never code."""

from __future__ import annotations

import msgspec

from proctor.compile.model import (
    Agreement,
    Cache,
    Compilation,
    Dispatch,
    ProbeAnswers,
    Shape,
    Timing,
)
from proctor.engines.base import EngineConfig
from proctor.engines.compiling.settings import Compile
from proctor.rows import Request


class Unit(msgspec.Struct, frozen=True):
    """One batch of rows that an engine is given, as it stands for others like it.

    Attributes:
        shape: what it looks like; `patches` is filled in by the process that has the model's processor.
        requests: the rows, as a run would send them, with ids of their own.
    """

    shape: Shape
    requests: tuple[Request, ...]


class Workload(msgspec.Struct, frozen=True):
    """What the run that is planned asks of the encoder.

    Attributes:
        units: by share, the largest first.
        rows: of the source.
        notes: what the sample does not stand for, one line each.
    """

    units: tuple[Unit, ...]
    rows: int
    notes: tuple[str, ...] = ()


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured.

    Attributes:
        targets: names or patterns of modules; empty: those of the spec, else the architecture's preset.
        backend: of the compiler; None: the spec's, else inductor.
        rounds: that count, in each process.
        warmups: rounds before those, which are kept and do not count.
        processes: the first finds the compiler's cache empty, the others what it has left there.
        most: of them; those beyond `processes` time what is open then. 0: no more than `processes`.
        rows: that the planned run has; None: those of the source.
        sample: rows of the source that are looked at.
        answers: every how many rounds whole answers are timed; 0: never.
        agreement: whether outputs are compared.
        seconds: longest time that one process may take.
    """

    targets: tuple[str, ...] = ()
    backend: str | None = None
    rounds: int = 10
    warmups: int = 2
    processes: int = 3
    most: int = 0
    rows: int | None = None
    sample: int = 64
    answers: int = 2
    agreement: bool = True
    seconds: float = 3600.0

    @property
    def most_processes(self) -> int:
        """`most`, and never less than `processes`."""
        return max(self.processes, self.most)


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What one process is to do.

    Attributes:
        task: ``bench``, or ``explain``: where the graphs of the targets break, without timing.
        config: of the engine, without planted faults, and with nothing compiled.
        how: targets are compiled, and which ones.
        process: its number, from 0.
        cache: whether the compiler's cache is empty.
        only: what is timed, of the targets, the encoder and the answers; empty: everything.
    """

    task: str
    config: EngineConfig
    units: tuple[Unit, ...]
    how: Compile = Compile()
    process: int = 0
    cache: Cache = "cold"
    rounds: int = 10
    warmups: int = 2
    answers: int = 2
    agreement: bool = True
    only: tuple[str, ...] = ()


class Explained(msgspec.Struct, frozen=True):
    """Where the graph of one module breaks.

    Attributes:
        target: it belongs to; empty for the whole encoder.
        module: its name in the model.
        like: how many modules of the target are of its class and have weights of its shapes, itself included.
        graphs: that one call gives.
        breaks: each as one line with its reason and place.
        failed: why it could not be traced at all; empty if it could.
    """

    target: str
    module: str
    like: int
    graphs: int
    breaks: tuple[str, ...] = ()
    failed: str = ""


class Piece(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a process has to tell, a part at a time: whoever ends it early has all that was told by then.

    Attributes:
        doing: what it is at, in a few words.
        trouble: why it ended before its work was done; empty if it did not.
        mistake: whether `trouble` is the user's to mend, and `where` and `fix` say how.
        finished: whether its work is done.
        subject, targets, shapes, ...: as in `proctor.compile.model.Measured`.
    """

    doing: str = ""
    trouble: str = ""
    mistake: bool = False
    where: str | None = None
    fix: str | None = None
    finished: bool = False
    subject: dict[str, str | int | float | bool | None] = {}
    targets: dict[str, int] = {}
    shapes: tuple[Shape, ...] = ()
    timings: tuple[Timing, ...] = ()
    compilations: tuple[Compilation, ...] = ()
    dispatches: tuple[Dispatch, ...] = ()
    agreements: tuple[Agreement, ...] = ()
    answers: tuple[ProbeAnswers, ...] = ()
    explained: tuple[Explained, ...] = ()
    notes: tuple[str, ...] = ()
