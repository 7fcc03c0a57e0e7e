"""Files that are damaged, none of ours, or made to do harm: each is named, none hangs, nothing is written."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from proctor.cli.trace import app
from proctor.cli.trace.heading import opened
from proctor.rows import UserError
from proctor.trace import open_trace
from proctor.trace.export import export as write
from proctor.trace.reading.misplaced import misplaced
from proctor.trace.views import VIEWS
from tests.trace.exports import TABLES, Export, process_id


def small(path: Path) -> Export:
    return Export(path).launch("saxpy", 100, 200, 300).launch("gemm", 400, 500, 900)


def damaged(tmp_path: Path, what: str) -> Path:
    file = tmp_path / "t.sqlite"
    good = small(tmp_path / "good.sqlite").close().read_bytes()
    contents = {
        "empty": b"",
        "zeros": b"\x00" * 8192,
        "zeroed header": b"\x00" * 100 + good[100:],
        "cut": good[: len(good) // 2 + 100],
        "header only": good[:100],
        "sixteen bytes": good[:16],
        "text": b"hello, this is text",
        "garbage pages": good[:100] + os.urandom(len(good) - 100),
        "schema": good.replace(b"CREATE TABLE", b"CREATE \xc6ABLE", 1),
        "png": b"\x89PNG\r\n\x1a\n" + b"\x00" * 100,
    }
    file.write_bytes(contents[what])
    return file


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("empty", "the file is empty"),
        ("zeros", "begins with zeros: an export that was interrupted"),
        ("zeroed header", "begins with zeros: an export that was interrupted"),
        ("cut", "the file is cut off: it says it has"),
        ("header only", "the file is cut off"),
        ("sixteen bytes", "damaged"),
        ("text", "not a SQLite database"),
        ("garbage pages", "the file is damaged"),
        ("schema", "the file is damaged: its schema is no text"),
        ("png", "not a SQLite database"),
    ],
)
def test_damaged_files_are_named_in_one_line(tmp_path: Path, what: str, said: str) -> None:
    file = damaged(tmp_path, what)
    with pytest.raises(UserError, match=said) as raised:
        open_trace(file)
    assert str(raised.value).startswith(f"{file}: ")
    assert "\n" not in str(raised.value)


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="this is a directory"):
        open_trace(tmp_path)
    with pytest.raises(UserError, match="no such file"):
        open_trace(tmp_path / "nothing.sqlite")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="not an ordinary file"):
        open_trace(tmp_path / "pipe")
    (tmp_path / "some.bin").write_bytes(b"\x7fELF")
    with pytest.raises(UserError, match="this is no trace"):
        open_trace(tmp_path / "some.bin")
    (tmp_path / "some.qdstrm").write_bytes(b"x")
    with pytest.raises(UserError, match="not finished"):
        open_trace(tmp_path / "some.qdstrm")


def test_a_database_that_is_no_export(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.sqlite") as connection:
        connection.execute("CREATE TABLE history (url)")
    connection.close()
    with pytest.raises(UserError, match="no export of Nsight Systems"):
        open_trace(tmp_path / "other.sqlite")


def test_a_page_that_is_damaged_is_told_when_it_is_read(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite")
    for number in range(2000):
        export.kernel("k", number * 10, number * 10 + 5)
    file = export.close()
    data = bytearray(file.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 4096] = b"\xff" * 4096
    file.write_bytes(data)
    with pytest.raises(UserError, match="the file is damaged"):
        open_trace(file)


FOREVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT {columns} FROM n"


@pytest.mark.parametrize("table", ["CUPTI_ACTIVITY_KIND_KERNEL", "StringIds", "META_DATA_EXPORT", "PROCESSES"])
def test_a_view_in_the_place_of_a_table_is_not_run(tmp_path: Path, table: str) -> None:
    with Export(tmp_path / "t.sqlite") as export:
        export.call("cudaFree", 1, 2)
        export.annotation("a", 1, 2)
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        connection.execute(f"DROP TABLE IF EXISTS {table}")
        columns = ", ".join(f'i AS "{word.partition(":")[0].rstrip("!")}"' for word in TABLES[table].split())
        connection.execute(f"CREATE VIEW {table} AS {FOREVER.format(columns=columns)}")
    connection.close()
    with open_trace(tmp_path / "t.sqlite") as trace:
        assert trace.one("SELECT count(*) FROM kernels") == 0
        if table in ("CUPTI_ACTIVITY_KIND_KERNEL", "PROCESSES", "StringIds"):
            (note,) = [note for note in trace.notes if note.code == "not_tables"]
            assert table in note.what


def test_a_virtual_table_and_computed_columns_are_not_run(tmp_path: Path) -> None:
    with Export(tmp_path / "t.sqlite") as export:
        export.call("cudaFree", 1, 2)
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        connection.execute("CREATE VIRTUAL TABLE CUPTI_ACTIVITY_KIND_KERNEL USING fts5(start)")
        connection.execute('CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start, "end", deviceId)')
        connection.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (1, 2, 0)")
        long = "length(replace(hex(zeroblob(100000000)), '0', 'aaaa'))"
        connection.execute(f"ALTER TABLE CUPTI_ACTIVITY_KIND_MEMCPY ADD COLUMN bytes AS ({long})")
    connection.close()
    with open_trace(tmp_path / "t.sqlite") as trace:
        assert list(trace.rows("SELECT start, bytes FROM copies")) == [(1, None)]
        assert not trace.has("kernels")


def test_a_tree_that_never_ends_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = small(tmp_path / "t.sqlite").close()
    with open_trace(file) as trace:
        trace.guard.allow(1_000_000)
        with pytest.raises(UserError, match="does not end"):
            trace.one(f"SELECT count(*) FROM ({FOREVER.format(columns='i')})")
        assert trace.one("SELECT count(*) FROM kernels") == 2  # the next question has its own allowance


def test_values_too_large_are_not_read(tmp_path: Path) -> None:
    file = small(tmp_path / "t.sqlite").close()
    with sqlite3.connect(file) as connection:
        connection.execute("INSERT INTO StringIds VALUES (99, CAST(zeroblob(80000000) AS TEXT))")
    connection.close()
    with pytest.raises(UserError, match="damaged: string or blob too big"):
        open_trace(file)


def test_text_that_is_no_text_is_read(tmp_path: Path) -> None:
    file = small(tmp_path / "t.sqlite").close()
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE StringIds SET value = CAST(x'ff41' AS TEXT) WHERE id = 1")
    connection.close()
    with open_trace(file) as trace:
        assert trace.text([1, 77]) == {1: "\ufffdA", 77: "[string 77 is not in the trace]"}


def test_ctrl_c_ends_a_long_question(tmp_path: Path) -> None:
    file = small(tmp_path / "t.sqlite").close()
    question = f"SELECT count(*) FROM ({FOREVER.format(columns='i')})"
    code = (
        "from proctor.trace import open_trace\n"
        f"with open_trace({str(file)!r}) as trace:\n"
        "    trace.guard.allow(None)\n"
        "    print('asking', flush=True)\n"
        "    try:\n"
        f"        trace.one({question!r})\n"
        "    except KeyboardInterrupt:\n"
        "        print('interrupted', flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "asking\n"
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "interrupted\n"
        assert child.wait(timeout=60) == 0
    finally:
        child.kill()
        child.communicate()


def test_times_that_no_clock_reaches_are_in_no_figure(tmp_path: Path) -> None:
    far = (1 << 62) - 1
    export = Export(tmp_path / "t.sqlite").kernel("near", 100, 300).kernel("far", 10, far).kernel("early", -far, 0)
    export.kernel("farther", 400, far + 1).kernel("farthest", -(1 << 63), (1 << 63) - 1).annotation(
        "open", far + 1, None
    )
    with open_trace(export.close()) as trace:
        names = 'SELECT text, "end" - kernels.start FROM kernels JOIN strings ON strings.id = name ORDER BY kernels.id'
        assert list(trace.rows(names)) == [("near", 200), ("far", far - 10), ("early", far)]
        assert trace.window == (-far, far)
        (note,) = [note for note in trace.notes if note.code == "bad_times"]
        assert "2 kernels, 1 annotations" in note.what


def test_figures_that_add_up_to_too_much_are_told(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").kernel("k", 0, 10)
    export.copy(0, 5, bytes=(1 << 63) - 1).copy(5, 9, bytes=(1 << 63) - 1)
    with open_trace(export.close()) as trace:
        with pytest.raises(UserError, match="damaged: integer overflow"):
            trace.one("SELECT sum(bytes) FROM copies")
        for suffix in ("html", "json", "parquet"):  # where nothing is added up, they are shown
            assert write(trace, tmp_path / f"picture.{suffix}").events == 3


def test_a_table_without_row_ids_is_not_read(tmp_path: Path) -> None:
    file = Export(tmp_path / "t.sqlite").call("cudaFree", 1, 2).close()
    with sqlite3.connect(file) as connection:
        columns = "start, \"end\", deviceId, note DEFAULT 'without rowid', PRIMARY KEY (start)"
        connection.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({columns}) WITHOUT ROWID")
        connection.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY ({columns})")
        for table in ("KERNEL", "MEMCPY"):
            connection.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_{table} VALUES (1, 2, 0, '')")
    connection.close()
    with open_trace(file) as trace:
        assert not trace.has("kernels")
        assert trace.one("SELECT count(*) FROM copies") == 1
        (note,) = [note for note in trace.notes if note.code == "not_tables"]
        assert "CUPTI_ACTIVITY_KIND_KERNEL" in note.what


@pytest.mark.parametrize("value", ["'soon'", "x'00ff'", "9e999"])
@pytest.mark.parametrize("column", ["contextId", "streamId", "deviceId", "demangledName", "correlationId"])
def test_what_is_no_number_where_one_belongs_is_told(tmp_path: Path, column: str, value: str) -> None:
    file = small(tmp_path / "t.sqlite").gpu().close()
    with sqlite3.connect(file) as connection:
        connection.execute(f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET {column} = {value}")
    connection.close()
    shown = {view: set(columns) for view, (_, columns) in VIEWS.items()}
    failed = 0
    for words in (
        ["summary"],
        ["census"],
        ["gaps"],
        ["overlap"],
        ["timeline"],
        ["export", str(tmp_path / "o.parquet")],
    ):
        result = CliRunner().invoke(app, [words[0], str(file), *words[1:]])
        if result.exit_code:
            assert isinstance(result.exception, UserError), words
            match = re.search(
                r"the file is damaged: (kernels)\.(\w+) has values that are no whole numbers", str(result.exception)
            )
            assert match is not None, result.exception
            assert match[2] in shown[match[1]]
            failed += 1
    assert failed


@pytest.mark.parametrize("value", ["NULL", "'soon'", "x'00ff'", "1.5"])
def test_a_process_that_is_no_number_is_that_of_the_calls(tmp_path: Path, value: str) -> None:
    file = small(tmp_path / "t.sqlite").close()
    with sqlite3.connect(file) as connection:
        connection.execute(f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = {value}")
    connection.close()
    with open_trace(file) as trace:
        assert list(trace.rows("SELECT DISTINCT process FROM kernels")) == [(process_id(100),)]
        assert [note.code for note in trace.notes if note.code == "no_process"] == ["no_process"]


def test_bytes_in_the_place_of_a_text_are_told(tmp_path: Path) -> None:
    file = small(tmp_path / "t.sqlite").annotation("a", 50, 150).close()
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE NVTX_EVENTS SET text = x'00ff'")
    connection.close()
    for words in (["nvtx", str(file)], ["export", str(file), str(tmp_path / "o.json")]):
        result = CliRunner().invoke(app, words)
        assert isinstance(result.exception, UserError)
        assert "damaged: annotations.text has values that are no text" in str(result.exception)


def test_a_fault_of_the_program_is_not_put_on_the_file(tmp_path: Path) -> None:
    file = small(tmp_path / "t.sqlite").close()
    with open_trace(file) as trace:
        assert misplaced(trace) is None
    with pytest.raises(KeyError, match="ours"), opened(file):
        raise KeyError("ours")
