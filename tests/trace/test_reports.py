"""Reports are exported by the user's nsys into the cache; here a stand-in of it is on PATH."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from proctor.rows import UserError
from proctor.trace import open_trace
from tests.trace.exports import Export

Nsys = Callable[[str], Path]

EXPORTS = """
import shutil, sys
arguments = sys.argv[1:]
assert arguments[:5] == ["export", "--type", "sqlite", "--force-overwrite", "true"], arguments
assert arguments[5] == "--output" and len(arguments) == 8, arguments
open({log!r}, "a").write(arguments[7] + "\\n")
shutil.copyfile({good!r}, arguments[6])
print("Processing 100%")
"""
REFUSES = """
import sys
print("Processing...")
print("Importer error: the report was made by a newer version (2025.6.1) than this (2023.4.4).", file=sys.stderr)
sys.exit(1)
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a report, and a cache and a PATH of its own."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "user").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))
    Export(tmp_path / "good.sqlite").gpu().launch("k", 1, 2, 3).close()
    (tmp_path / "user" / "run 1.nsys-rep").write_bytes(b"NSYS report")
    return tmp_path


@pytest.fixture
def nsys(work: Path) -> Nsys:
    def install(code: str) -> Path:
        program = work / "bin" / "nsys"
        text = code.replace("{log!r}", repr(str(work / "log"))).replace("{good!r}", repr(str(work / "good.sqlite")))
        program.write_text(f"#!{sys.executable}\n{text}")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return program

    return install


def report(work: Path) -> Path:
    return work / "user" / "run 1.nsys-rep"


def test_a_report_is_exported_once_and_not_beside(work: Path, nsys: Nsys) -> None:
    nsys(EXPORTS)
    for _ in range(2):
        with open_trace(report(work)) as trace:
            assert trace.path == report(work)
            assert trace.one("SELECT count(*) FROM kernels") == 1
            assert not trace.notes
    assert (work / "log").read_text() == f"{report(work)}\n"
    assert [path.name for path in (work / "user").iterdir()] == ["run 1.nsys-rep"]
    (export,) = (work / "cache").rglob("*.sqlite")
    (work / "bin" / "nsys").unlink()
    with open_trace(report(work)) as trace:  # the second look needs no nsys
        assert trace.has("kernels")
    report(work).write_bytes(b"another report")
    with pytest.raises(UserError, match="not on PATH"):
        open_trace(report(work))
    assert export.is_file()


def test_a_damaged_export_in_the_cache_is_made_again(work: Path, nsys: Nsys) -> None:
    nsys(EXPORTS)
    open_trace(report(work)).close()
    (export,) = (work / "cache").rglob("*.sqlite")
    export.write_bytes(export.read_bytes()[:5000])
    with open_trace(report(work)) as trace:
        assert trace.has("kernels")
    assert len((work / "log").read_text().splitlines()) == 2


def test_without_nsys_the_message_says_what_to_do(work: Path) -> None:
    with pytest.raises(
        UserError, match=r"nsys, which reads reports, is not on PATH \(install Nsight Systems, or export"
    ):
        open_trace(report(work))
    report(work).with_suffix(".sqlite").write_bytes(b"x")
    with pytest.raises(UserError, match=r"not on PATH \(or give run 1\.sqlite\)"):
        open_trace(report(work))


def test_an_nsys_that_refuses_is_quoted(work: Path, nsys: Nsys) -> None:
    program = nsys(REFUSES)
    with pytest.raises(UserError) as raised:
        open_trace(report(work))
    said = str(raised.value)
    assert "exit code 1" in said
    assert "made by a newer version (2025.6.1) than this (2023.4.4)." in said
    assert f"a report newer than {program} needs the nsys that recorded it" in said
    assert "\n" not in said
    assert not list((work / "cache").rglob("*.sqlite"))


@pytest.mark.parametrize("code", ["", "print('done')", "import sys; open(sys.argv[7], 'w').write('x')"])
def test_an_nsys_that_writes_nothing_is_an_error(work: Path, nsys: Nsys, code: str) -> None:
    nsys(code)
    with pytest.raises(UserError, match=r"nsys could not export it|damaged|cut off"):
        open_trace(report(work))


def test_an_nsys_that_does_not_run_is_an_error(work: Path) -> None:
    program = work / "bin" / "nsys"
    program.write_text("#!/nowhere/at/all\n")
    program.chmod(0o755)
    with pytest.raises(UserError, match="nsys does not run"):
        open_trace(report(work))


@pytest.mark.parametrize(("older", "noted"), [(True, True), (False, False)])
def test_a_stale_export_beside_is_pointed_out(work: Path, nsys: Nsys, older: bool, noted: bool) -> None:
    nsys(EXPORTS)
    beside = report(work).with_suffix(".sqlite")
    beside.write_bytes(b"an old export")
    os.utime(beside, (1, 1) if older else (2**31, 2**31))
    with open_trace(report(work)) as trace:
        assert ("stale_export" in [note.code for note in trace.notes]) is noted
    assert beside.read_bytes() == b"an old export"


def test_without_a_cache_a_report_opens_all_the_same(work: Path, nsys: Nsys, monkeypatch: pytest.MonkeyPatch) -> None:
    nsys(EXPORTS)
    (work / "a-file").write_bytes(b"")
    (work / "tmp").mkdir()
    monkeypatch.setenv("PROCTOR_CACHE", str(work / "a-file"))
    monkeypatch.setattr("tempfile.tempdir", str(work / "tmp"))
    with open_trace(report(work)) as trace:
        assert trace.one("SELECT count(*) FROM kernels") == 1
        trace.run("CREATE TEMP TABLE t AS SELECT * FROM kernels ORDER BY name")
    assert not list((work / "tmp").iterdir())


def test_names_are_no_options_and_no_shell(work: Path, nsys: Nsys, monkeypatch: pytest.MonkeyPatch) -> None:
    nsys(EXPORTS)
    monkeypatch.chdir(work / "user")
    odd = Path("--output=x; touch y.nsys-rep")
    odd.write_bytes(b"third")
    with open_trace(odd) as trace:
        assert trace.has("kernels")
    assert sorted(path.name for path in Path().iterdir()) == [str(odd), "run 1.nsys-rep"]
