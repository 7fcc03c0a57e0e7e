"""Questions in SQL read, and do nothing else; what a capture holds of the environment stays there."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from proctor.cli.trace import app
from proctor.rows import UserError
from proctor.trace import Trace, open_trace
from proctor.trace.sql import HIDDEN, asked
from tests.trace.exports import Export

SECRET = "HF_TOKEN=hf_aSecretThatNobodyMaySee"
PREFIX = "PROCESS_0:ENVIRONMENT_VARIABLE"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    export = Export(tmp_path / "t.sqlite").gpu()
    for number in range(5):
        export.launch(f"kernel \x1b[31m{number}", number * 10, number * 10 + 2, number * 10 + 7)
    export.row("META_DATA_CAPTURE", name=PREFIX, value=SECRET)
    export.row("TARGET_INFO_SYSTEM_ENV", name="DeviceEnvironment", value=f"A=1;{SECRET}")
    export.row("TARGET_INFO_SYSTEM_ENV", name="CpuCores", value="32")
    return export.close()


def answer(trace: Trace, sql: str, **options: Any) -> list[tuple[Any, ...]]:
    with asked(trace, sql, **options) as found:
        return list(found.rows())


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def test_views_and_raw_tables_answer(file: Path) -> None:
    with open_trace(file) as trace:
        assert answer(trace, 'SELECT count(*), sum("end" - start) FROM kernels') == [(5, 25)]
        assert answer(trace, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL") == [(5,)]
        counting = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3) SELECT * FROM n"
        assert answer(trace, counting) == [(1,), (2,), (3,)]
        assert answer(trace, "SELECT name FROM pragma_table_info('StringIds')") == [("id",), ("value",)]
        assert answer(trace, "SELECT value FROM META_DATA_CAPTURE WHERE name LIKE '%MODE'") == [("Graph",)]
        assert answer(trace, "SELECT sum(value) FROM json_each('[1, 2]')") == [(3,)]
        assert answer(trace, "/* how */ EXPLAIN QUERY PLAN SELECT 1")[0][-1] == "SCAN CONSTANT ROW"


def test_a_limit_cuts_and_says_so(file: Path) -> None:
    with open_trace(file) as trace:
        for limit, rows, cut in ((3, 3, True), (5, 5, False), (None, 5, False)):
            with asked(trace, "SELECT * FROM kernels", limit=limit) as found:
                assert len(list(found.rows())) == rows
                assert found.cut is cut


def test_columns_of_one_name_are_told_apart(file: Path) -> None:
    with open_trace(file) as trace, asked(trace, "SELECT 1 a, 2 a, 3 AS 'a:2', 4 a") as found:
        assert found.columns == ["a", "a:2", "a:2:2", "a:3"]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("DELETE FROM StringIds", "not allowed: DELETE"),
        ("UPDATE main.StringIds SET value = ''", "not allowed: UPDATE"),
        ("INSERT INTO StringIds VALUES (1, 'x')", "not allowed: INSERT"),
        ("DROP TABLE StringIds", "not allowed"),
        ("CREATE TABLE t (a)", "not allowed"),
        ("CREATE TEMP TABLE t (a)", "not allowed"),
        ("CREATE TEMP VIEW v AS SELECT * FROM main.META_DATA_CAPTURE", "not allowed"),
        ("ALTER TABLE StringIds RENAME TO x", "not allowed"),
        ("ATTACH 'other.sqlite' AS other", "not allowed: ATTACH"),
        ("VACUUM INTO 'copy.sqlite'", "not allowed"),
        ("PRAGMA journal_mode = WAL", "not allowed: PRAGMA journal_mode"),
        ("PRAGMA temp_store_directory = '/'", "not allowed: PRAGMA"),
        ("BEGIN", "not allowed: a transaction"),
        ("REINDEX", "not allowed|no question"),
        ("ANALYZE", "not allowed"),
        ("SELECT load_extension('x')", r"not allowed: load_extension\(\)"),
        ("SELECT 1; DELETE FROM StringIds", "more than one statement"),
        ("", "no question"),
        ("SELEC 1", "syntax error"),
        ("SELECT * FROM kernles", r"no such table: kernles \(views: strings, kernels, .*tables of the file: "),
        ("SELECT strat FROM kernels", r"no such column: strat \(kernels has id, start, end, device"),
        ("SELECT nope(1)", "no such function: nope"),
        ("SELECT ?", "takes no parameters"),
        ("SELECT zeroblob(1e9)", r"SQLite says: string or blob too big \(no value"),
        ("SELECT sum(9223372036854775806) FROM strings", r"SQLite says: integer overflow \(total\(\)"),
    ],
)
def test_what_cannot_be_asked(file: Path, sql: str, said: str) -> None:
    before = file.read_bytes(), sorted(file.parent.iterdir())
    with open_trace(file) as trace:
        with pytest.raises(UserError, match=said):
            answer(trace, sql)
        assert answer(trace, "SELECT count(*) FROM strings") == [(6,)]
    assert (file.read_bytes(), sorted(file.parent.iterdir())) == before


LEAKS = [
    "SELECT * FROM META_DATA_CAPTURE",
    "SELECT * FROM main.META_DATA_CAPTURE",
    "SELECT value FROM main.[meta_data_capture]",
    "SELECT max(c.value) FROM main.META_DATA_CAPTURE AS c",
    "SELECT value FROM TARGET_INFO_SYSTEM_ENV",
    "SELECT value FROM main.TARGET_INFO_SYSTEM_ENV",
    "SELECT (SELECT group_concat(value) FROM main.META_DATA_CAPTURE)",
    "WITH c AS (SELECT * FROM main.META_DATA_CAPTURE) SELECT * FROM c",
    "SELECT name FROM main.META_DATA_CAPTURE WHERE value LIKE 'HF_TOKEN=hf_a%'",
    "SELECT count(*) FROM META_DATA_CAPTURE WHERE value GLOB 'HF_TOKEN=hf_a*'",
    "SELECT hex(value) FROM META_DATA_CAPTURE",
    "SELECT * FROM theirs",
    "SELECT sample FROM sqlite_stat4",
    # names that the question chose, in the place of a view's
    "WITH META_DATA_CAPTURE AS (SELECT * FROM main.META_DATA_CAPTURE) SELECT * FROM META_DATA_CAPTURE",
    "WITH meta_data_capture(name, value) AS MATERIALIZED (SELECT name, value FROM main.META_DATA_CAPTURE) "
    "SELECT * FROM meta_data_capture",
    "SELECT * FROM (SELECT value FROM main.META_DATA_CAPTURE) AS META_DATA_CAPTURE",
    # columns that a join matches by name: SQLite asks nobody whether they may be read
    "SELECT value FROM (SELECT 'x' AS value) NATURAL FULL JOIN main.META_DATA_CAPTURE",
    "SELECT value FROM (SELECT 'x' AS value) FULL JOIN main.TARGET_INFO_SYSTEM_ENV USING (value)",
    f"SELECT '{SECRET}' || count(*) FROM (SELECT '{SECRET}' AS value) NATURAL JOIN main.META_DATA_CAPTURE",
    "SELECT value FROM main.META_DATA_CAPTURE INDEXED BY i",
    "SELECT value FROM json_each((SELECT json_group_array(value) FROM META_DATA_CAPTURE))",
]


@pytest.mark.parametrize("sql", LEAKS)
def test_the_environment_is_never_shown(file: Path, sql: str) -> None:
    with sqlite3.connect(file) as connection:  # a view of the user's own, and an index with samples of what is in it
        connection.execute("CREATE VIEW theirs AS SELECT * FROM META_DATA_CAPTURE")
        connection.execute("CREATE INDEX i ON META_DATA_CAPTURE (value)")
        connection.execute("ANALYZE")
    connection.close()
    with open_trace(file) as trace:
        refused = ""
        found = []
        try:
            found = answer(trace, sql)
        except UserError as error:
            refused = str(error)
        assert not refused or re.search("not allowed|no such", refused)
        text = repr(found)
        assert "hf_aSecret" not in text
        assert SECRET.encode().hex() not in text.lower()
        if "count(*)" in sql and not refused:
            assert found == [(0,)]
        if sql == LEAKS[0]:
            assert (PREFIX, HIDDEN) in found


def test_a_question_that_takes_too_long_ends(file: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    with open_trace(file) as trace, pytest.raises(UserError, match="takes too long"):
        answer(trace, endless, steps=1_000_000)


def test_other_questions_are_unhindered_afterwards(file: Path) -> None:
    with open_trace(file) as trace:
        answer(trace, "SELECT 1")
        trace.run("CREATE TEMP TABLE mine AS SELECT * FROM kernels")
        assert trace.one("SELECT count(*) FROM mine") == 5


def test_json(file: Path) -> None:
    result = invoke("sql", str(file), "SELECT start, x'00ff' b, NULL n FROM kernels", "--json", "--limit", "2")
    assert result.exit_code == 0
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert lines == [
        {"event": "row", "values": {"start": 2, "b": "00ff", "n": None}},
        {"event": "row", "values": {"start": 12, "b": "00ff", "n": None}},
        {"event": "done", "rows": 2, "cut": True},
    ]


def test_csv(file: Path) -> None:
    result = invoke("sql", str(file), "SELECT id, text FROM strings ORDER BY id", "--csv", "--limit", "0")
    rows = list(csv.reader(StringIO(result.stdout)))
    assert rows[:2] == [["id", "text"], ["1", "kernel \x1b[31m0"]]
    assert len(rows) == 7


def test_csv_ends_quietly_where_nobody_reads(file: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    command = [sys.executable, "-m", "proctor", "trace", "sql", str(file), endless, "--csv", "--limit", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stderr is not None
            assert [child.stdout.readline() for _ in range(3)] == ["i\n", "1\n", "2\n"]
            child.stdout.close()
            assert child.stderr.read() == ""
            assert child.wait(timeout=60) == 0
        finally:
            child.kill()


def test_tables_spell_out_control_characters(file: Path) -> None:
    result = invoke("sql", str(file), "SELECT text FROM strings WHERE id = 1")
    assert r"kernel \x1b[31m0" in result.stdout
    assert "\x1b[31m" not in result.stdout
    assert "no rows" in invoke("sql", str(file), "SELECT 1 WHERE 0").stdout


def test_a_cut_answer_says_so(file: Path) -> None:
    assert "cut after 2 rows" in invoke("sql", str(file), "SELECT 1 FROM strings", "--limit", "2").stderr


def test_notes(samples: Path) -> None:
    file = str(samples / "nsys/nsys-ai/mfu_2gpu_before.sqlite")
    shown = invoke("notes", file).stdout
    assert "NVIDIA Nsight Systems 2026.2.1.210, schema 3.25.0" in shown
    assert "GPUs: 2 that the trace does not describe" in shown
    assert "144 python3, 145 python3" in shown
    assert "window: 0.023 to 299.984 ms after the first event, which is at 60,111,430,336 ns" in shown
    assert "info: the trace does not say what GPU 0, 1 is" in shown
    head = json.loads(invoke("notes", file, "--json").stdout)
    assert head["schema"] == "3.25.0"
    times = {"start_ns": 60_111_453_577, "end_ns": 60_411_414_544, "origin_ns": 60_111_430_336}
    assert head["window"] == times
    assert {note["code"] for note in head["notes"]} == {"gpu_unknown", "dangling_launches", "cut"}


# Privacy


def environment(file: Path) -> set[str]:
    """Whole settings of a capture's environment, and long values, that stand nowhere else in it."""
    uri = f"{file.as_uri()}?mode=ro&immutable=1"
    with sqlite3.connect(uri, uri=True) as raw:
        rows = raw.execute("SELECT value FROM META_DATA_CAPTURE WHERE name LIKE '%ENVIRONMENT_VARIABLE'").fetchall()
        rows += raw.execute("SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'DeviceEnvironment'").fetchall()
        others = raw.execute(
            "SELECT value FROM StringIds UNION SELECT name FROM PROCESSES UNION SELECT value FROM META_DATA_CAPTURE "
            "WHERE name NOT LIKE '%ENVIRONMENT%' UNION SELECT value FROM META_DATA_EXPORT UNION "
            "SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name <> 'DeviceEnvironment'"
        ).fetchall()
    raw.close()
    elsewhere = "\n".join(str(value) for (value,) in others)
    settings = {part for (value,) in rows for part in [value, *value.split(";")] if "=" in part}
    values = {setting.partition("=")[2].strip("\"'") for setting in settings}
    return {text for text in settings | values if len(text) >= 8 and text not in elsewhere}


NSYS = [
    "nsys/nsys-ai/mfu_2gpu_before.sqlite",
    "nsys/nsys-ai/h100_2gpu_1s.sqlite",
    "nsys/nsys-ai/mock.sqlite",
    "nsys/lighttransport-gemm/profile.sqlite",
]
EVERYTHING = [
    *("META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV", "META_DATA_EXPORT", "StringIds", "PROCESSES", "sqlite_master"),
]


def commands() -> list[list[str]]:
    """Every verb that takes a trace alone, as text and for machines; and whole tables."""
    verbs = [command.name for command in app.registered_commands if command.name not in ("sql", "decode")]
    plain = [[str(verb), "FILE", *more] for verb in verbs for more in ([], ["--json"])]
    return [*plain, *(["sql", "FILE", f"SELECT * FROM {t}", "--limit", "0", "--json"] for t in EVERYTHING)]


@pytest.mark.parametrize("name", NSYS)
def test_no_command_shows_the_environment_of_a_real_capture(
    samples: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = samples / name
    secrets = environment(file)
    assert len(secrets) > 20
    monkeypatch.chdir(tmp_path)  # what a verb writes by default lands here, and is searched, too
    answered = 0
    for words in commands():
        result = invoke(*[str(file) if word == "FILE" else word for word in words])
        said = result.stdout + result.stderr + str(result.exception or "")
        said += "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file())
        found = [secret for secret in secrets if secret in said]
        assert not found, f"{words}: {len(found)} values of the environment"
        answered += result.exit_code == 0
    assert answered >= 8
