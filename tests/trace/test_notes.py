"""Each thing that takes from what a trace can say is named, with its meaning."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from proctor.rows import UserError
from proctor.trace import open_trace
from proctor.trace.model import Note, Severity
from tests.trace.exports import Export, thread_id

INT_MAX = 2**31 - 1


def notes(export: Export) -> dict[str, Note]:
    with open_trace(export.close()) as trace:
        assert len({note.code for note in trace.notes}) == len(trace.notes)
        return {note.code: note for note in trace.notes}


@pytest.fixture
def export(tmp_path: Path) -> Export:
    return Export(tmp_path / "t.sqlite").gpu()


def test_a_sound_trace_has_none(export: Export) -> None:
    assert notes(export.launch("k", 1, 2, 3).annotation("a", 0, 9).row("OSRT_API", start=1, end=2)) == {}


def test_an_empty_trace(export: Export) -> None:
    (note,) = notes(export).values()
    assert (note.code, note.severity) == ("empty", Severity.ERROR)
    assert "--trace=cuda" in note.advice


def test_tables_that_are_there_but_empty(tmp_path: Path) -> None:
    assert list(notes(Export(tmp_path / "t.sqlite", lazy=False))) == ["empty"]


def test_a_trace_of_the_cpu_alone(export: Export) -> None:
    export.annotation("step", 0, 10).row(
        "OSRT_API", start=1, end=2, globalTid=thread_id(7), nameId=export.string("read")
    )
    file = export.close()
    with open_trace(file) as trace:
        assert [note.code for note in trace.notes] == ["no_cuda"]
        assert sorted(process.pid for process in trace.processes) == [7, 100]
        assert trace.window == (0, 0)
        assert not trace.has("kernels")
        error = trace.missing("kernels", "the census")
    assert isinstance(error, UserError)
    assert "no CUDA activity at all" in str(error)


def test_calls_without_kernels_say_what_the_profiler_said(export: Export) -> None:
    export.call("cudaLaunchKernel_v7000", 1, 2, correlation=1)
    export.row("DIAGNOSTIC_EVENT", severity=1, text="Profiling has started.")
    export.row("DIAGNOSTIC_EVENT", severity=3, text="Not all CUDA events might have been collected.")
    export.row("DIAGNOSTIC_EVENT", severity=2, text="Installed CUDA driver version (13.3)\nis not supported.")
    note = notes(export)["calls_without_kernels"]
    assert note.severity is Severity.ERROR
    assert note.what == (
        "no kernels, though 1 CUDA API calls were recorded; the profiler said: Installed CUDA driver version (13.3) is "
        "not supported | Not all CUDA events might have been collected"
    )


def test_copies_alone(export: Export) -> None:
    assert notes(export.copy(1, 2))["no_kernels"].what.startswith("no kernels, only copies")


def test_the_real_capture_without_kernels(samples: Path) -> None:
    with open_trace(samples / "nsys/lighttransport-gemm/profile.sqlite") as trace:
        (note,) = trace.notes
        assert note.code == "calls_without_kernels"
        assert "driver version (13.3) is not supported by this build" in note.what
        assert trace.gpus[0].name == "NVIDIA GeForce RTX 5060 Ti"
        assert trace.gpus[0].sm_count == 36
        assert trace.gpus[0].compute == (12, 0)


@pytest.mark.parametrize("mode", ["Graph", None])
def test_graphs_that_were_recorded_whole(tmp_path: Path, mode: str | None) -> None:
    export = Export(tmp_path / "t.sqlite", mode=mode).gpu().launch("k", 1, 2, 3)
    place = export.place(10, 90, 0, 7, 100, 50)
    export.row("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **place, graphId=1).call(
        "cudaGraphLaunch_v10000", 9, 10, correlation=50
    )
    note = notes(export)["graph_mode"]
    assert note.severity is Severity.WARNING
    assert note.what.startswith("1 launches of CUDA graphs were recorded " + ("as" if mode else "perhaps as"))
    assert "--cuda-graph-trace=node" in note.advice


def test_graph_launches_alone_are_enough(export: Export) -> None:
    export.launch("k", 1, 2, 3).call("cudaGraphLaunch_v10000", 9, 10, correlation=50).call("cuGraphLaunch", 11, 12)
    assert notes(export)["graph_mode"].what.startswith("2 launches")


@pytest.mark.parametrize("name", ["CUDA_GRAPH_TRACE_OPTIONS:MODE", "PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE"])
@pytest.mark.parametrize(("value", "warned"), [("Graph", True), ("Node", False)])
def test_the_mode_may_carry_a_process(tmp_path: Path, name: str, value: str, warned: bool) -> None:
    export = Export(tmp_path / "t.sqlite", mode=None).gpu().row("META_DATA_CAPTURE", name=name, value=value)
    export.launch("k", 1, 2, 3, api="cudaGraphLaunch_v10000")
    with open_trace(export.close()) as trace:
        assert trace.graph_mode == value.lower()
        assert ("graph_mode" in [note.code for note in trace.notes]) is warned


def test_mode_graph_without_graphs_is_no_matter(samples: Path) -> None:
    with open_trace(samples / "nsys/nsys-ai/mfu_2gpu_before.sqlite") as trace:
        assert trace.graph_mode == "graph"
        assert "graph_mode" not in [note.code for note in trace.notes]


def test_kernels_that_say_they_are_nodes_are_no_matter(export: Export) -> None:
    export.launch("k", 1, 2, 3, api="cudaGraphLaunch_v10000", graphNodeId=4294967297)
    assert "graph_mode" not in notes(export)


def test_graphs_without_times_do_not_stretch_the_window(export: Export) -> None:
    export.launch("k", 1000, 2000, 3000)
    place = {**export.place(0, 0, INT_MAX, 7, 100, 50), "end": 0}
    export.row("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **place)
    file = export.close()
    with open_trace(file) as trace:
        assert trace.window == (1000, 3000)
        assert {"graph_mode", "graph_times"} <= {note.code for note in trace.notes}
        assert list(trace.rows('SELECT start, "end" FROM graphs')) == [(None, None)]


def test_processes_that_launched_unseen(export: Export) -> None:
    export.launch("k", 1, 2, 3, pid=100)
    for number in range(3):
        export.call("cudaLaunchKernel_v7000", number, number + 1, pid=200, correlation=number)
    export.call("cudaGetDeviceCount", 1, 2, pid=300)  # launched nothing, so misses nothing
    note = notes(export)["foreign_processes"]
    assert note.what == ("1 of 3 processes launched kernels (3 calls) of which none was recorded: pid 200")


def test_launches_outside_the_window(samples: Path) -> None:
    """24, as an independent count over the raw tables gives."""
    file = samples / "nsys/nsys-ai/mfu_2gpu_before.sqlite"
    with sqlite3.connect(f"{file.as_uri()}?mode=ro&immutable=1", uri=True) as raw:
        (count,) = raw.execute(
            "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k WHERE NOT EXISTS (SELECT 1 FROM "
            "(SELECT correlationId c, globalTid >> 24 p FROM CUPTI_ACTIVITY_KIND_RUNTIME) WHERE c = k.correlationId "
            "AND p = k.globalPid >> 24)"
        ).fetchone()
    raw.close()
    assert count == 24
    with open_trace(file) as trace:
        found = {note.code: note for note in trace.notes}
        assert found["dangling_launches"].severity is Severity.INFO
        assert found["dangling_launches"].what.startswith("24 of 4,010 kernels")
        assert found["cut"].what == "the trace covers 0.30 s of a session of 119.44 s"
        assert found["gpu_unknown"].what == "the trace does not say what GPU 0, 1 is"


def test_many_dangling_launches_are_a_warning(export: Export) -> None:
    export.launch("k", 1, 2, 3).kernel("k", 4, 5).call("cudaFree", 0, 1)
    assert notes(export)["dangling_launches"].severity is Severity.WARNING


def test_where_there_is_too_much_to_look_up_the_note_says_at_least(
    export: Export, monkeypatch: pytest.MonkeyPatch
) -> None:
    from proctor.trace.reading import survey

    monkeypatch.setattr(survey, "_EXACT_ROWS", 0)
    export.kernel("early", 1, 2).launch("k", 10, 12, 13).launch("l", 20, 22, 23)
    assert notes(export)["dangling_launches"].what.startswith("at least 1 of 3 kernels")


BAD = ['UPDATE {t} SET "end" = start - 1 WHERE rowid = 1', "UPDATE {t} SET \"end\" = 'soon' WHERE rowid = 1"]


@pytest.mark.parametrize("change", [*BAD, "UPDATE {t} SET start = x'00' WHERE rowid = 1"])
@pytest.mark.parametrize(
    ("table", "view"),
    [
        ("CUPTI_ACTIVITY_KIND_KERNEL", "kernels"),
        ("CUPTI_ACTIVITY_KIND_MEMCPY", "copies"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "calls"),
        ("NVTX_EVENTS", "annotations"),
    ],
)
def test_rows_with_impossible_times_are_left_out(export: Export, change: str, table: str, view: str) -> None:
    for start in (10, 100):
        export.launch("k", start, start + 10, start + 20).copy(start, start + 5, correlation=0)
        export.annotation("a", start, start + 30)
    file = export.close()
    with sqlite3.connect(file) as connection:
        connection.execute(change.format(t=table))
    connection.close()
    with open_trace(file) as trace:
        (note,) = [note for note in trace.notes if note.code == "bad_times"]
        assert note.what.startswith(f"times that cannot be: 1 {view} ")
        assert trace.one(f"SELECT count(*) FROM {view}") == 1
        assert trace.one(f'SELECT min("end" - start) FROM {view}') > 0
        assert trace.window[1] == 120


def test_null_times(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").gpu()
    export.connection.execute(
        'CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, "end", deviceId, globalPid, demangledName)'
    )
    export.connection.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5, NULL, 0, 1, 1), (5, 9, 0, 1, 1)")
    export.string("k")
    file = export.close()
    with open_trace(file) as trace:
        assert "bad_times" in [note.code for note in trace.notes]
        assert list(trace.rows('SELECT start, "end", registers FROM kernels')) == [(5, 9, None)]
        assert trace.window == (5, 9)


def test_annotations_without_an_end_are_no_mistake(export: Export) -> None:
    export.launch("k", 1, 2, 3).annotation("domain", 0, None, kind=75).annotation("mark", 5, None, kind=34)
    export.annotation("open", 6, None)
    assert "bad_times" not in notes(export)


def test_names_that_are_not_there(export: Export) -> None:
    export.launch("k", 1, 2, 3).kernel("l", 4, 5, correlation=1)
    export.connection.execute("DELETE FROM StringIds WHERE value = 'l'")
    assert notes(export)["names_missing"].what == "1 names of kernels are not in the trace"


def without_processes(export: Export) -> Export:
    export.connection.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = NULL")
    return export


def test_kernels_without_a_process_are_those_of_the_only_one(export: Export) -> None:
    file = without_processes(export.launch("k", 1, 2, 3)).close()
    with open_trace(file) as trace:
        assert [(note.code, note.severity) for note in trace.notes] == [("no_process", Severity.INFO)]
        assert trace.one("SELECT count(*) FROM kernels JOIN calls USING (correlation, process)") == 1


def test_kernels_without_a_process_stay_so_where_there_are_two(export: Export) -> None:
    file = without_processes(export.launch("k", 1, 2, 3).launch("k", 1, 2, 3, pid=200)).close()
    with open_trace(file) as trace:
        assert [(note.code, note.severity) for note in trace.notes] == [("no_process", Severity.WARNING)]
        assert trace.one("SELECT count(*) FROM kernels WHERE process IS NULL") == 2


def test_what_other_tools_added_is_named_and_harmless(samples: Path, export: Export) -> None:
    export.launch("k", 1, 2, 3).connection.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN name TEXT")
    assert notes(export) == {}
    with open_trace(samples / "nsys/nsys-ai/mock.sqlite") as trace:
        (note,) = [note for note in trace.notes if note.code == "foreign_objects"]
        assert note.severity is Severity.INFO
        assert note.what.startswith("another tool added 8 of its own objects to the file: _nsysai_kernel_corr")


def test_rows_in_no_order_of_time_are_no_matter(export: Export) -> None:
    for start in (500, 100, 300):
        export.launch("k", start, start + 10, start + 20)
    file = export.close()
    with open_trace(file) as trace:
        assert not trace.notes
        assert trace.window == (100, 520)


def test_a_profiler_that_lost_events_is_quoted(export: Export) -> None:
    export.launch("k", 1, 2, 3).row(
        "DIAGNOSTIC_EVENT", severity=3, text="Not all CUDA events might have been collected."
    )
    note = notes(export)["diagnostics"]
    assert note.severity is Severity.WARNING


def test_errors_come_first(export: Export) -> None:
    export.call("cudaGraphLaunch", 1, 2)
    file = export.row("META_DATA_EXPORT", name="x", value="y").close()
    with open_trace(file) as trace:
        grave = [note.severity for note in trace.notes]
    assert grave == sorted(grave, key=["error", "warning", "info"].index)
    assert len(grave) == 2
