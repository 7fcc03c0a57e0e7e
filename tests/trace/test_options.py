"""Options that make no sense are told in one line; none of them ends in a fault of the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from proctor.cli.trace import app
from proctor.rows import UserError
from proctor.trace import open_trace
from proctor.trace.overlap.overlap import overlap
from proctor.trace.timeline.timeline import parse_time
from proctor.trace.work.gaps import gaps
from proctor.trace.work.scope import Scope
from tests.trace.exports import Export


@pytest.fixture
def file(tmp_path: Path) -> Path:
    export = Export(tmp_path / "t.sqlite").gpu()
    for number in range(4):
        export.launch("k", number * 100, number * 100 + 20, number * 100 + 70)
    return export.close()


def refused(*arguments: object) -> str:
    """What a command says that ends with 1: a `UserError`, or typer's own line."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code != 0
    assert isinstance(result.exception, (UserError, SystemExit)), repr(result.exception)
    return str(result.exception) + result.stderr


TIMED = ["census", "gaps", "overlap", "timeline"]


@pytest.mark.parametrize("verb", TIMED)
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--since", "5us", "--until", "1us"], r"the window ends (1,000 ns) before it begins (5,000 ns)"),
        (["--since", "9" * 30 + "s"], "is no time"),
        (["--until", "-5"], "'-5' is no time"),
        (["--since", "5 parsecs"], "is no time"),
        (["--device", "3"], "there is no GPU 3 in this trace (it has 0)"),
        (["--device", "9" * 30], "2147483647"),
    ],
)
def test_windows_and_devices_that_are_none(file: Path, verb: str, options: list[str], said: str) -> None:
    assert said in refused(verb, file, *options)


def test_an_export_of_a_window_or_device_that_is_none(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert "before it begins" in refused("export", file, out, "--since", "2us", "--until", "1us")
    assert "there is no GPU 1" in refused("export", file, out, "--device", 1)
    assert "is no time" in refused("export", file, out, "--since", "9" * 30)
    assert not out.exists()


@pytest.mark.parametrize("options", [["--pid", "9" * 30], ["--pid", "-4"], ["--limit", "9" * 30], ["--limit", "0"]])
def test_numbers_out_of_range(file: Path, options: list[str]) -> None:
    assert "Invalid value" in refused("timeline", file, *options)


@pytest.mark.parametrize("question", [gaps, overlap])
def test_a_window_without_work_is_not_a_trace_without_kernels(file: Path, question: Any) -> None:
    with open_trace(file) as trace, pytest.raises(UserError, match="none starts in the part of the trace"):
        question(trace, Scope(since=10_000))


def test_the_timeout_of_a_question(file: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    assert "takes too long" in refused("sql", file, endless, "--timeout", "1e-9")
    assert "Invalid value" in refused("sql", file, "SELECT 1", "--timeout", "inf")
    assert CliRunner().invoke(app, ["sql", str(file), "SELECT 1", "--timeout", "0"]).exit_code == 0


def test_the_latest_time() -> None:
    assert parse_time(str((1 << 62) - 1)) == (1 << 62) - 1
    with pytest.raises(UserError, match="is no time"):
        parse_time(str(1 << 62))
