"""Stack dumps and logs of engines: listed, read in part, and nothing else of the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proctor.results import RunDir
from proctor.rows import Event, UserError
from proctor.view.browse.evidence import MOST_BYTES, MOST_FILES, dump_of, evidence_of, read_evidence


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "run")
    run.folder.prepare("stalls")
    return run


def _put(run: RunDir, name: str, data: bytes = b"stacks", changed: float = 1e9) -> Path:
    path = run.root / "stalls" / name
    path.write_bytes(data)
    os.utime(path, (changed, changed))
    return path


def test_files_are_listed_newest_first_and_others_are_not(run: RunDir) -> None:
    assert evidence_of(RunDir(run.root.parent / "none")) == ([], 0)
    _put(run, "host:1-1.txt", changed=2e9)
    _put(run, "host:1.log", b"Loading ...\n", changed=1e9)
    for name in (".hidden.txt", "core.123", "odd\n.txt"):
        _put(run, name)
    (run.root / "stalls" / "link.txt").symlink_to("/etc/passwd")
    (run.root / "stalls" / "folder.txt").mkdir()
    files, left_out = evidence_of(run)
    assert [(file.name, file.what, file.size) for file in files] == [
        ("host:1-1.txt", "stack dump", 6),
        ("host:1.log", "what the engine printed", 12),
    ]
    assert left_out == 0


def test_more_files_than_anybody_reads_are_counted(run: RunDir) -> None:
    for number in range(MOST_FILES + 3):
        (run.root / "stalls" / f"{number}.txt").touch()
    files, left_out = evidence_of(run)
    assert (len(files), left_out) == (MOST_FILES, 3)


def test_of_a_dump_the_beginning_is_shown_and_of_a_log_the_end(run: RunDir) -> None:
    data = b"first" + b"x" * MOST_BYTES + b"last\xff"
    _put(run, "a.txt", data)
    _put(run, "a.log", data)
    dump, log = read_evidence(run, "a.txt"), read_evidence(run, "a.log")
    assert dump.text.startswith("first")
    assert log.text.endswith("last\ufffd")
    assert {dump.left_out, log.left_out} == {len(data) - MOST_BYTES}
    assert (dump.end, log.end) == (False, True)
    assert dump.size == len(data)


def test_nothing_else_is_read(run: RunDir) -> None:
    (run.root / "secret.txt").write_text("secret")
    (run.root / "stalls" / "link.txt").symlink_to(run.root / "secret.txt")
    (run.root / "stalls" / "folder.txt").mkdir()
    os.mkfifo(run.root / "stalls" / "pipe.txt")
    _put(run, "spec.yaml")
    names = (
        "../secret.txt",
        "link.txt",
        "folder.txt",
        "pipe.txt",
        "spec.yaml",
        "none.txt",
        "",
        ".x.txt",
        "a/b.txt",
        "/x.txt",
    )
    for name in (*names, "a\0.txt", "x" * 2000 + ".txt"):
        with pytest.raises(UserError):
            read_evidence(run, name)


def test_the_dump_of_an_event_is_a_name_and_no_path() -> None:
    def of(dump: object) -> str | None:
        return dump_of(Event("engine.stalled", data={"dump": dump}))  # type: ignore[dict-item]

    assert of("/somewhere/run/stalls/host:1-3.txt") == "host:1-3.txt"
    assert of("host:1-3.txt") == "host:1-3.txt"
    for other in ("/etc/passwd", "", 5, None, "x/.txt", "a\n.txt"):
        assert of(other) is None
    assert dump_of(Event("engine.crashed")) is None
