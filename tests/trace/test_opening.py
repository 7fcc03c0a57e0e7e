"""Every export opens, no file is touched, and what is no trace is named."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path

import pytest

from proctor.trace import open_trace
from proctor.trace.model import GraphMode, Origin, pid_of
from proctor.trace.reading import survey as survey_module
from tests.trace.exports import GENERATIONS, TABLES, Export, exists, process_id

SAMPLES = [
    "nsys/nsys-ai/mfu_2gpu_before.sqlite",
    "nsys/nsys-ai/mfu_2gpu_after.sqlite",
    "nsys/nsys-ai/h100_2gpu_1s.sqlite",
    "nsys/nsys-ai/mock.sqlite",
    "nsys/lighttransport-gemm/profile.sqlite",
    "kineto/h100_vit_falconsai_nsfw.json.gz",
    "kineto/h100_bert_small.json.gz",
]
QUERIES = [
    "SELECT count(*) FROM kernels",
    'SELECT k.name, sum(k."end" - k.start) FROM kernels k GROUP BY 1 ORDER BY 2 DESC',
    "SELECT count(*) FROM kernels k JOIN calls c ON c.correlation = k.correlation AND c.process = k.process",
    "CREATE TEMP TABLE IF NOT EXISTS mine AS SELECT * FROM annotations",
    "INSERT INTO mine SELECT * FROM mine",
]


def state(path: Path) -> tuple[str, int, int, list[str]]:
    """Everything that reading must leave as it is."""
    stat = path.stat()
    names = sorted(item.name for item in path.parent.iterdir())
    return hashlib.sha256(path.read_bytes()).hexdigest(), stat.st_mtime_ns, stat.st_size, names


def small(path: Path, **options: object) -> Export:
    return (
        Export(path, **options)  # type: ignore[arg-type]
        .launch("saxpy", 100, 200, 300)
        .launch("gemm", 400, 500, 900)
        .annotation("step", 50, 1000)
    )


@pytest.mark.parametrize("name", SAMPLES)
def test_no_sample_is_touched(samples: Path, name: str) -> None:
    before = state(samples / name)
    with open_trace(samples / name) as trace:
        for query in QUERIES:
            trace.run(query)
        for view in ("kernels", "calls", "annotations"):
            trace.has(view)
    assert state(samples / name) == before


@pytest.mark.parametrize("lazy", [True, False])
@pytest.mark.parametrize("schema", GENERATIONS)
def test_every_generation_opens_to_the_same_figures(tmp_path: Path, schema: str, lazy: bool) -> None:
    file = small(tmp_path / "t.sqlite", schema=schema, lazy=lazy).gpu(sms=132).close()
    before = state(file)
    with open_trace(file) as trace:
        assert str(trace.schema) == schema
        assert trace.tool.startswith("NVIDIA Nsight Systems 20")
        assert trace.graph_mode is GraphMode.GRAPH
        assert trace.window == (100, 900)
        assert list(trace.rows('SELECT start, "end", correlation FROM kernels ORDER BY 1')) == [
            (200, 300, 1),
            (500, 900, 2),
        ]
        assert trace.one("SELECT count(*) FROM kernels k JOIN calls c USING (correlation, process)") == 2
        assert trace.gpu(0, process_id(100)).sm_count == 132
        assert [(p.pid, p.process) for p in trace.processes] == [(100, process_id(100))]
        assert trace.has("kernels")
        assert not trace.has("copies")
        assert [note.code for note in trace.notes] == []
    assert state(file) == before


@pytest.mark.parametrize("schema", GENERATIONS)
def test_a_generation_has_the_columns_it_had(tmp_path: Path, schema: str) -> None:
    """The writer of these tests is held to the documented histories."""
    with Export(tmp_path / "t.sqlite", schema=schema, lazy=False) as export:
        columns = len(export.table("CUPTI_ACTIVITY_KIND_KERNEL"))
        tables = {name for name in TABLES if exists(name, export.schema)}
    expected = {"2.9.1": 27, "3.1.7": 27, "3.4.0": 27, "3.24.0": 38, "3.24.14": 39, "3.25.0": 40}
    assert columns == expected.get(schema, 28)
    assert ("EXPORT_META_DATA" in tables) == (schema in ("2.9.1", "3.1.7"))
    assert ("META_DATA_CAPTURE" in tables) == (schema not in ("2.9.1", "3.1.7"))


@pytest.mark.parametrize(
    ("schema", "code", "severity"),
    [
        ("3.26.0", "schema_newer", "info"),
        ("4.0.0", "schema_newer", "warning"),
        ("2.1.0", "schema_older", "warning"),
        (None, "schema_unknown", "warning"),
    ],
)
def test_versions_that_are_not_known_open_with_a_note(
    tmp_path: Path, schema: str | None, code: str, severity: str
) -> None:
    with open_trace(small(tmp_path / "t.sqlite", schema=schema).gpu().close()) as trace:
        assert [(note.code, note.severity) for note in trace.notes] == [(code, severity)]
        assert trace.one("SELECT count(*) FROM kernels") == 2


def test_a_schema_in_three_rows_is_understood(tmp_path: Path) -> None:
    export = small(tmp_path / "t.sqlite", schema=None).gpu()
    for part, value in (("MAJOR", "3"), ("MINOR", "17"), ("MICRO", "2")):
        export.row("META_DATA_EXPORT", name=f"EXPORT_SCHEMA_VERSION_{part}", value=value)
    with open_trace(export.close()) as trace:
        assert str(trace.schema) == "3.17.2"


def test_a_numbered_kernel_table_is_the_kernel_table(tmp_path: Path) -> None:
    file = small(tmp_path / "t.sqlite").close()
    with sqlite3.connect(file) as connection:
        connection.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO CUPTI_ACTIVITY_KIND_KERNEL_V3")
    connection.close()
    with open_trace(file) as trace:
        assert trace.one("SELECT count(*) FROM kernels") == 2


def test_a_database_in_wal_mode_opens_and_gets_no_side_files(tmp_path: Path) -> None:
    file = small(tmp_path / "t.sqlite").gpu().close()
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    before = state(file)
    with open_trace(file) as trace:
        assert trace.one("SELECT count(*) FROM kernels") == 2
        assert not trace.notes
        assert state(file) == before
    assert state(file) == before


@pytest.mark.parametrize(("suffix", "code"), [("-wal", "wal_ignored"), ("-journal", "journal_ignored")])
def test_a_journal_beside_is_neither_read_nor_removed(tmp_path: Path, suffix: str, code: str) -> None:
    file = small(tmp_path / "t.sqlite").gpu().close()
    file.with_name(file.name + suffix).write_bytes(b"not empty")
    before = state(file)
    with open_trace(file) as trace:
        assert [note.code for note in trace.notes] == [code]
        assert trace.one("SELECT count(*) FROM kernels") == 2
    assert state(file) == before


def test_what_stands_only_in_a_wal_is_not_read_and_that_is_said(tmp_path: Path) -> None:
    file = small(tmp_path / "t.sqlite").gpu().close()
    writer = sqlite3.connect(file)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
    writer.commit()
    with open_trace(file) as trace:
        assert trace.one("SELECT count(*) FROM kernels") == 2
        assert "wal_ignored" in [note.code for note in trace.notes]
    writer.close()


NAMES = ["with space.sqlite", "100%.sqlite", "a?b#c.sqlite", "ünï.sqlite", "quote'.sqlite"]


@pytest.mark.parametrize("name", NAMES)
def test_odd_names_open(tmp_path: Path, name: str) -> None:
    with open_trace(small(tmp_path / name).close()) as trace:
        assert trace.one("SELECT count(*) FROM kernels") == 2
    assert [item.name for item in tmp_path.iterdir()] == [name]


def test_a_large_file_is_surveyed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from proctor.trace.reading import cache, opening

    monkeypatch.setattr(opening, "_KEPT_FROM", 0)
    monkeypatch.setattr(cache, "_RACY_NS", -(10**12))
    file = small(tmp_path / "t.sqlite").kernel("late", 5000, 10).gpu().close()
    with open_trace(file) as first:
        notes = first.notes
    monkeypatch.setattr(survey_module, "_extent", lambda *_: pytest.fail("surveyed again"))
    with open_trace(file) as second:
        assert second.notes == notes
        assert second.window == (100, 900)
        assert second.one("SELECT count(*) FROM kernels") == 2  # the bad row is left out this time, too
        assert [note.code for note in notes] == ["bad_times"]


def test_the_two_ranks_of_a_real_capture(samples: Path) -> None:
    with open_trace(samples / SAMPLES[0]) as trace:
        assert trace.origin is Origin.NSYS
        assert str(trace.schema) == "3.25.0"
        assert [(p.pid, p.name) for p in trace.processes] == [(144, "python3"), (145, "python3")]
        assert [pid_of(p.process) for p in trace.processes] == [144, 145]
        assert trace.one("SELECT count(*) FROM kernels") == 4010
        assert trace.one('SELECT sum("end" - start) FROM kernels') == 535_200_650
        joined = "SELECT count(*) FROM kernels k JOIN calls c ON c.correlation = k.correlation"
        assert trace.one(joined) == 4280  # too many: both ranks use some ids
        assert trace.one(f"{joined} AND c.process = k.process") == 3986
        assert trace.window == (60_111_453_577, 60_411_414_544)
