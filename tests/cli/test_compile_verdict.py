"""``proctor compile verdict``: what it says, what it writes, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from proctor.cli.compile_verdict import add_verdict
from proctor.compile.store import BENCH, write_bench
from proctor.compile.verdict import verdict
from proctor.rows import UserError
from tests.compile.invented import FASTER, invented

app = typer.Typer()
add_verdict(app)
app.command("other")(lambda: None)  # with one command alone typer leaves its name out


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["verdict", *map(str, arguments)])


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    measured = invented(FASTER)
    write_bench(tmp_path / BENCH, measured, verdict(measured))
    return tmp_path


def test_a_stored_bench_is_judged_again_and_its_page_written(stored: Path) -> None:
    done = run(stored)
    assert done.exit_code == 0, done.output
    assert " ".join(done.output.split()).startswith("Compile blocks: it saves ")
    for word in ("embed", "skip", "keep", "in no target", "break-even with a cold cache", "worth it"):
        assert word in done.output
    assert "<html" in (stored / "compile.html").read_text()
    assert run(stored / BENCH).output == done.output


def test_another_length_of_the_run_is_another_verdict(stored: Path) -> None:
    done = run(stored, "--rows", 20)
    assert done.exit_code == 4
    assert done.output.startswith("Do not compile. ")


def test_machines_get_one_line(stored: Path, tmp_path: Path) -> None:
    page = tmp_path / "elsewhere.html"
    done = run(stored, "--json", "--page", page)
    (line,) = done.output.splitlines()
    told = json.loads(line)
    assert (told["event"], told["exit_code"], told["best"]) == ("compile_verdict", 0, ["blocks"])
    assert told["page"] == str(page)
    assert page.is_file()


def test_the_published_comparison_decides_nothing(tmp_path: Path) -> None:
    done = run("--published", "--page", tmp_path / "page.html")
    assert done.exit_code == 3
    text = " ".join(done.output.split())
    assert text.startswith("Nothing can be concluded: ")
    for figure in ("12,787 rows", "loses 4.22 s", "+0.60 % end to end, but +3.37 % was measured", "88.8 ms", "+15.6 %"):
        assert figure in text
    assert (tmp_path / "page.html").is_file()


@pytest.mark.parametrize("arguments", [[], ["somewhere", "--published"]])
def test_one_bench_is_judged_and_not_two(arguments: list[str]) -> None:
    with pytest.raises(UserError, match="give the file of a stored bench, or --published"):
        raise run(*arguments).exception or AssertionError


def test_no_bench_is_told(tmp_path: Path) -> None:
    assert isinstance(run(tmp_path).exception, UserError)
