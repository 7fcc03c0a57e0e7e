"""What a reader must know before trusting a figure of a trace: each with its meaning and what to capture next time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from proctor.trace.model import Gpu, GraphMode, Note, Origin, Schema, Severity, pid_of
from proctor.trace.reading.metadata import NEWEST, OLDEST, Diagnostic, Session
from proctor.trace.reading.survey import ON_GPU, Survey

_CAPTURE = "capture with `nsys profile --trace=cuda,nvtx,osrt`"
_LOST = ("not all", "missing", "not supported", "dropped", "lost", "failed", "no cuda", "unable", "cannot", "error")
_FULL_COVER = 0.9
_MUCH = 0.1


class Facts(NamedTuple):
    """Everything that notes are made from.

    Attributes:
        foreign: tables, views and indexes that no export has.
        unread: names of the model's tables that the file has as a view or a virtual table, so that they are not read.
    """

    origin: Origin
    survey: Survey
    schema: Schema | None = None
    graph_mode: GraphMode = GraphMode.UNKNOWN
    gpus: Sequence[Gpu] = ()
    diagnostics: Sequence[Diagnostic] = ()
    session: Session = Session()
    foreign: Sequence[str] = ()
    unread: Sequence[str] = ()


def notes_of(facts: Facts) -> list[Note]:
    """The notes that apply, the gravest first."""
    found = [note for rule in _RULES for note in rule(facts)]
    order = [Severity.ERROR, Severity.WARNING, Severity.INFO]
    return sorted(found, key=lambda note: order.index(note.severity))


def _no_kernels(facts: Facts) -> Iterator[Note]:
    survey = facts.survey
    if survey.rows("kernels"):
        return
    if not survey.rows(*survey.extents) and not survey.untimed_graphs:
        what, code = "the trace is empty: no kernel, no API call, no annotation", "empty"
        advice = f"{_CAPTURE}, and see that the program ran inside the captured window"
    elif survey.rows("graphs") or survey.untimed_graphs:
        what, code = "no kernels: the trace holds launches of CUDA graphs only", "no_kernels"
        advice = "capture with `--cuda-graph-trace=node`"
    elif survey.rows("calls"):
        what, code = (
            f"no kernels, though {survey.rows('calls'):,} CUDA API calls were recorded",
            "calls_without_kernels",
        )
        advice = "let the program end before the capture does, and use an nsys no older than the GPU's driver"
    elif survey.rows(*ON_GPU):
        what, code, advice = "no kernels, only copies, memsets or synchronisations", "no_kernels", _CAPTURE
    else:
        what, code = "no CUDA activity at all: only what ran on the CPU was recorded", "no_cuda"
        advice = f"{_CAPTURE}; if the program did use a GPU, trace the process that did"
    reasons = _losses(facts)
    because = f"; the profiler said: {' | '.join(reasons)}" if reasons else ""
    yield Note(code, Severity.ERROR, what + because, "nothing can be said about kernels", advice)


def _graphs(facts: Facts) -> Iterator[Note]:
    survey = facts.survey
    launches = survey.rows("graphs") + survey.untimed_graphs or survey.graph_launches
    if not launches or survey.graph_nodes or facts.graph_mode is GraphMode.NODE or facts.origin is Origin.KINETO:
        return
    recorded = "as a whole" if facts.graph_mode is GraphMode.GRAPH else "perhaps as a whole"
    yield Note(
        "graph_mode",
        Severity.WARNING,
        f"{launches:,} launches of CUDA graphs were recorded {recorded}, not kernel by kernel",
        "kernels inside graphs are in no figure here, and time in a graph can look idle",
        "capture with `--cuda-graph-trace=node`",
    )


def _graph_times(facts: Facts) -> Iterator[Note]:
    if count := facts.survey.untimed_graphs:
        yield Note(
            "graph_times",
            Severity.WARNING,
            f"{count:,} launches of CUDA graphs have no times",
            "the profiler could not collect them: their time is in no figure",
            "capture with `--cuda-graph-trace=node`",
        )


def _silent_processes(facts: Facts) -> Iterator[Note]:
    survey = facts.survey
    if not survey.silent or not survey.rows("kernels"):
        return
    pids = ", ".join(str(pid_of(process)) for process in list(survey.silent)[:8])
    yield Note(
        "foreign_processes",
        Severity.WARNING,
        f"{len(survey.silent)} of {len(survey.calling)} processes launched kernels ({sum(survey.silent.values()):,} "
        f"calls) of which none was recorded: pid {pids}",
        "their work on the GPU is in no figure; workers that were forked or killed leave this",
        "capture with `--trace-fork-before-exec=true`, or start workers by spawn, and let them end by themselves",
    )


def _bad_rows(facts: Facts) -> Iterator[Note]:
    bad = {view: extent.bad for view, extent in facts.survey.extents.items() if extent.bad}
    if bad:
        yield Note(
            "bad_times",
            Severity.WARNING,
            f"times that cannot be: {', '.join(f'{count:,} {view}' for view, count in bad.items())} "
            "have no number for a time, end before they start, or lie further off than any clock",
            "these rows are left out of every figure",
        )


def _dangling(facts: Facts) -> Iterator[Note]:
    survey = facts.survey
    if not survey.dangling:
        return
    least = "" if survey.dangling_exact else "at least "
    much = survey.dangling > _MUCH * survey.rows("kernels")
    yield Note(
        "dangling_launches",
        Severity.WARNING if much else Severity.INFO,
        f"{least}{survey.dangling:,} of {survey.rows('kernels'):,} kernels have no launching call in the trace",
        "the calls came before the window, or were not recorded; launch delay and NVTX range are unknown for them",
    )


def _cut(facts: Facts) -> Iterator[Note]:
    start, end = facts.survey.window
    session = facts.session.duration_ns
    if not session or not facts.survey.dangling or end - start >= _FULL_COVER * session:
        return
    yield Note(
        "cut",
        Severity.INFO,
        f"the trace covers {(end - start) / 1e9:,.2f} s of a session of {session / 1e9:,.2f} s",
        "figures hold for that window only",
    )


def _gpus(facts: Facts) -> Iterator[Note]:
    used = {device for _, device in facts.survey.used}
    unknown = sorted({gpu.device for gpu in facts.gpus if gpu.origin == "not in the trace" and gpu.device in used})
    if unknown:
        yield Note(
            "gpu_unknown",
            Severity.INFO,  # it matters to occupancy alone, and what computes that says so itself
            f"the trace does not say what GPU {', '.join(map(str, unknown))} is",
            "occupancy and waves need its number of SMs and their limits, nothing else does",
            "for `occupancy` and `stakeout` name it, e.g. --gpu H100",
        )
    names = {gpu.name for gpu in facts.gpus if gpu.name}
    numbered = any(gpu.process is not None for gpu in facts.gpus)
    if len(names) > 1:
        yield Note(
            "mixed_gpus",
            Severity.INFO if numbered or facts.schema is None or facts.schema >= (3, 17, 2) else Severity.WARNING,
            f"GPUs of different models: {', '.join(sorted(names))}",
            "times on one say nothing about another"
            + ("" if numbered else "; device numbers are taken as the machine's, which CUDA_VISIBLE_DEVICES changes"),
        )


def _names(facts: Facts) -> Iterator[Note]:
    if count := facts.survey.nameless:
        yield Note(
            "names_missing",
            Severity.WARNING,
            f"{count:,} names of kernels are not in the trace",
            "these kernels have a number for a name, and cannot be placed",
            "export again from the .nsys-rep",
        )


def _process(facts: Facts) -> Iterator[Note]:
    survey = facts.survey
    if not survey.no_process:
        return
    if len(survey.calling) <= 1:
        one = "they are taken as those of the one process that called CUDA"
        meaning = one if survey.calling else "they are shown as those of one unknown process"
        yield Note("no_process", Severity.INFO, "kernels do not say which process they are of", meaning)
        return
    yield Note(
        "no_process",
        Severity.WARNING,
        f"kernels do not say which process they are of, and {len(survey.calling)} processes called CUDA",
        "kernels cannot be joined with calls or NVTX ranges",
        "export again with a newer nsys",
    )


def _schema(facts: Facts) -> Iterator[Note]:
    if facts.origin is not Origin.NSYS:
        return
    schema = facts.schema
    if schema is None:
        meaning = "tables and columns are taken for what their names say"
        yield Note("schema_unknown", Severity.WARNING, "the export does not say which version its schema is", meaning)
    elif schema > NEWEST:
        broken = schema.major > NEWEST.major
        yield Note(
            "schema_newer",
            Severity.WARNING if broken else Severity.INFO,
            f"schema {schema} is newer than {NEWEST}, the newest known here",
            "its meaning may have changed" if broken else "what was added since is not read",
        )
    elif schema < OLDEST:
        meaning = "tables and columns are taken for what their names say"
        yield Note("schema_older", Severity.WARNING, f"schema {schema} is older than {OLDEST}", meaning)


def _foreign(facts: Facts) -> Iterator[Note]:
    if facts.unread:
        yield Note(
            "not_tables",
            Severity.WARNING,
            f"{', '.join(facts.unread)}: not an ordinary table in this file",
            "not read, since a view can compute anything; figures are as if it were absent",
            "export again from the .nsys-rep",
        )
    if facts.foreign:
        shown = ", ".join(facts.foreign[:5]) + (" ..." if len(facts.foreign) > 5 else "")
        yield Note(
            "foreign_objects",
            Severity.INFO,
            f"another tool added {len(facts.foreign)} of its own objects to the file: {shown}",
            "they are not read",
        )


def _diagnostics(facts: Facts) -> Iterator[Note]:
    losses = _losses(facts)
    if losses and facts.survey.rows("kernels"):
        grave = any(said.severity >= 3 and _is_loss(said) for said in facts.diagnostics)
        yield Note(
            "diagnostics",
            Severity.WARNING if grave else Severity.INFO,
            f"the profiler said: {' | '.join(losses)}",
            "the capture may lack something",
        )


def _losses(facts: Facts) -> list[str]:
    """What the profiler said about things it could not record; what it does not support explains most."""
    texts = [said.text.rstrip(". ") for said in facts.diagnostics if _is_loss(said)]
    return sorted(texts, key=lambda text: "not supported" not in text)[:3]


def _is_loss(said: Diagnostic) -> bool:
    text = said.text.lower()
    return said.severity >= 2 and any(word in text for word in _LOST) and ("cuda" in text or "cupti" in text)


_RULES: Sequence[Callable[[Facts], Iterator[Note]]] = (
    *(_no_kernels, _graphs, _silent_processes, _bad_rows, _graph_times, _process, _names, _schema, _gpus),
    *(_diagnostics, _dangling, _cut, _foreign),
)


def beside(found: Mapping[str, int]) -> Iterator[Note]:
    """Notes about files beside an export that SQLite would have read or written: by suffix, their sizes in bytes."""
    if found.get("-wal"):
        yield Note(
            "wal_ignored",
            Severity.WARNING,
            "a -wal file lies beside the export: some tool has the file open, or died with it open",
            "what stands only in that file is not read",
            "close the tool, or export again",
        )
    if found.get("-journal"):
        yield Note(
            "journal_ignored",
            Severity.WARNING,
            "a -journal file lies beside the export: a tool was writing to the file",
            "the file may hold half of a change",
            "close the tool, or export again",
        )
