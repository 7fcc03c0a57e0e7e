"""The commands over a run directory, as a person types them."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from proctor.results import RunDir, write_records, write_tombstones
from proctor.rows import Event
from proctor.rows.records import record_schema
from proctor.sources.mds import MDSWriter
from proctor.spec import build_spec

SCHEMA = record_schema({"correct": pa.bool_()})


def proctor(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "proctor", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def json_lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run of two checkpoints over six rows: one blank answer, one row left unanswered."""
    spec = build_spec(
        {
            "run_dir": str(tmp_path / "run"),
            "source": {"kind": "jsonl", "path": str(tmp_path / "rows.jsonl")},
            "engine": {"kind": "scripted", "checkpoints": ["a", "b"]},
            "task": {"kind": "exact"},
        }
    )
    run = RunDir(tmp_path / "run")
    run.create(spec)
    run.write("source", {"rows": 6, "fingerprint": "x"})
    run.append_event(Event("engine.crashed", rows=(3,), message="SIGSEGV"))
    for checkpoint in ("a", "b"):
        rows = [
            {"row_id": i, "checkpoint": checkpoint, "sample_id": f"k{i}", "answer": f'say "{i}", [b]', "correct": True}
            for i in range(4)
        ]
        blank = {"row_id": 4, "checkpoint": checkpoint, "error_kind": "infer.empty", "error_message": "[blank]"}
        stamped = [{**row, "finished_at": datetime.now(UTC)} for row in [*rows, blank]]
        write_records(run.results, pa.Table.from_pylist(stamped, schema=SCHEMA))
    write_tombstones(run.root, "b", BitMap64([5]), SCHEMA, sweep=3)
    return run.root


def test_errors_lists_rows_with_the_reason(run_dir: Path) -> None:
    done = proctor("errors", run_dir)
    assert done.returncode == 0
    assert "[blank]" in done.stdout
    assert "3 rows" in done.stdout
    only = json_lines(proctor("errors", run_dir, "--kind", "lost", "--json"))
    assert [(row["row_id"], row["checkpoint"], row["error_kind"]) for row in only] == [(5, "b", "lost")]
    assert len(json_lines(proctor("errors", run_dir, "--checkpoint", "a", "--json"))) == 1
    assert "1 of 3 rows shown" in proctor("errors", run_dir, "--limit", "1").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("errors", "RUN", "--kind", "infer.crash"), "no error kind 'infer.crash' (one of read.corrupt"),
        (("errors", "RUN", "--checkpoint", "c"), "no checkpoint 'c' in this run (one of ['a', 'b'])"),
        (("errors", "RUN/nothing"), "no run here (no spec.yaml)"),
        (("export", "RUN", "--out", "RUN/no/x.csv"), "no such directory"),
        (("status", "RUN/nothing"), "no run here"),
        (("report", "RUN/nothing"), "no run here"),
        (("run", "RUN/spec.yaml", "--set", "engine.batchsize=2"), "did you mean 'batch_size'?"),
        (("run", "RUN/nothing.yaml"), "cannot read the spec"),
        (("plan", "RUN/spec.yaml"), "rows.jsonl"),
        (("mds", "inspect", "RUN"), "no MDS index"),
    ],
)
def test_a_mistake_is_one_line_on_stderr_and_exit_code_1(run_dir: Path, arguments: tuple[str, ...], said: str) -> None:
    done = proctor(*(argument.replace("RUN", str(run_dir)) for argument in arguments))
    assert done.returncode == 1
    assert done.stdout == ""
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("run",),
        ("run", "spec.yaml", "--bogus"),
        ("frobnicate",),
        ("run", "spec.yaml", "--set"),
        ("export", "--format=x"),
    ],
)
def test_a_wrong_command_line_is_a_mistake_and_not_too_many_errors(arguments: tuple[str, ...]) -> None:
    done = proctor(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Error: " in done.stderr


@pytest.mark.parametrize("odd", ["a:smile:b", "[bold]x[red]", "back\\[slash]", "x\x1b[31mred", "gone\u200b"])
def test_names_and_messages_are_shown_as_they_are(tmp_path: Path, odd: str) -> None:
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in odd)
    assert f"error: {shown}/nothing.yaml: cannot read" in proctor("run", f"{odd}/nothing.yaml").stderr
    kept = RunDir(tmp_path / "kept")
    rows = tmp_path / odd
    kept.create(
        build_spec(
            {
                "run_dir": str(kept.root),
                "source": {"kind": "jsonl", "path": str(rows), "columns": {"prompt": "q"}},
                "engine": {"kind": "scripted", "checkpoints": ["a"]},
                "task": {"kind": "exact"},
            }
        )
    )
    message = {"row_id": 0, "checkpoint": "a", "error_kind": "infer.failed", "error_message": odd}
    write_records(kept.results, pa.Table.from_pylist([message], schema=SCHEMA))
    assert shown in proctor("errors", kept.root).stdout
    rows.write_text(json.dumps({"q": odd}) + "\n")
    plan = proctor("plan", kept.root / "spec.yaml", "--set", f"run_dir={tmp_path / 'new'}").stdout
    assert f"1 row from {rows.parent}/{shown} (jsonl)" in plan
    assert f"user: {shown}" in plan


def test_a_reader_who_leaves_is_no_mistake(run_dir: Path) -> None:
    for arguments in (["errors", str(run_dir)], ["errors", str(run_dir), "--json"]):
        command = [sys.executable, "-m", "proctor", *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()
            assert process.stderr.read() == b""
        assert process.returncode == 0


def test_every_command_has_lines_for_machines(run_dir: Path) -> None:
    (exported,) = json_lines(proctor("export", run_dir, "--json"))
    assert exported == {"event": "export", "records": 11, "path": str(run_dir / "records.parquet")}
    (reported,) = json_lines(proctor("report", run_dir, "--json"))
    assert reported == {"event": "report", "path": str(run_dir / "report.html")}


def test_debug_shows_the_traceback(run_dir: Path) -> None:
    done = proctor("--debug", "status", run_dir / "nothing")
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_export_writes_every_record_once(run_dir: Path, tmp_path: Path) -> None:
    for form in ("csv", "jsonl", "parquet"):
        target = tmp_path / f"out.{form}"
        assert proctor("export", run_dir, "--format", form, "--out", target).returncode == 0
        if form == "csv":
            with target.open(newline="") as file:
                rows = list(csv.DictReader(file))
        elif form == "jsonl":
            rows = [json.loads(line) for line in target.read_text().splitlines()]
        else:
            rows = pq.read_table(target).to_pylist()
        keys = [(row["checkpoint"], int(row["row_id"])) for row in rows]
        assert keys == [("a", i) for i in range(5)] + [("b", i) for i in range(6)]
        assert rows[0]["answer"] == 'say "0", [b]'
    assert proctor("export", run_dir, "--checkpoint", "a").returncode == 0
    assert pq.read_table(run_dir / "records.parquet").num_rows == 5


def test_status_reads_the_files_alone(run_dir: Path) -> None:
    (status,) = json_lines(proctor("status", run_dir, "--json"))
    assert status["state"] == "crashed"
    assert status["total"] == 6
    assert status["done"] == {"a": 5, "b": 5}
    assert status["errors"] == {"a": 1, "b": 1}
    with RunDir(run_dir).locked(print):
        assert "running" in proctor("status", run_dir).stdout


def test_status_does_not_repeat_a_last_word_that_the_files_contradict(run_dir: Path) -> None:
    checkpoints = {name: {"done": 5} for name in ("a", "b")}
    RunDir(run_dir).write("status", {"state": "complete", "checkpoints": checkpoints})
    assert proctor("status", run_dir).stdout.startswith(f"complete  {run_dir}\n")
    (part,) = (run_dir / "results").glob("part-a-*.parquet")
    part.unlink()
    said = proctor("status", run_dir).stdout
    assert said.startswith(f"complete when it ended, not any more  {run_dir}\n")
    assert "a: 0 records are here, 5 were when the run ended" in said
    assert "b: " not in said
    (status,) = json_lines(proctor("status", run_dir, "--json"))
    assert (status["state"], len(status["doubts"])) == ("complete", 1)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{}", "source.json: does not say what the run's source was: Object missing required field `fingerprint`"),
        ("[1]", "source.json: not a JSON object: somebody or something has damaged it"),
        ("{", "source.json: not JSON: somebody or something has damaged it"),
    ],
)
def test_a_damaged_source_json_is_one_line(run_dir: Path, content: str, said: str) -> None:
    (run_dir / "source.json").write_text(content)
    done = proctor("status", run_dir)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_mds_inspect_and_verify(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with MDSWriter(out=data, columns={"n": "int", "text": "str"}, hashes=["sha1"], size_limit=1 << 10) as writer:
        for i in range(100):
            writer.write({"n": i, "text": "x" * i})
    (found,) = json_lines(proctor("mds", "inspect", data, "--json"))
    assert (found["rows"], found["hashes"]) == (100, ["sha1"])
    assert "100 rows" in proctor("mds", "inspect", data).stdout
    sound = proctor("mds", "verify", data)
    assert (sound.returncode, sound.stdout) == (0, "every shard is sound\n")
    shard = sorted(data.glob("*.mds"))[1]
    shard.write_bytes(shard.read_bytes()[:-1])
    broken = proctor("mds", "verify", data)
    assert broken.returncode == 2
    assert shard.name in broken.stdout


def test_the_version_and_the_help_are_quick_words(tmp_path: Path) -> None:
    assert proctor("--version").stdout.startswith("proctor 0.")
    assert "Exit code" in proctor("run", "--help").stdout


def test_an_interrupt_while_the_command_is_being_imported_is_told_in_one_word() -> None:
    script = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'proctor.cli.app':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "from proctor.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
