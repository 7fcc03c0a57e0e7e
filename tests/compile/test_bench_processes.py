"""A process of a bench ends in time, with its children, and tells what went wrong; nothing it told before is lost."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from proctor.compile import process
from proctor.compile.orders import Order, Piece
from proctor.compile.process import pieces
from proctor.engines.base import EngineConfig
from proctor.rows import UserError

pytestmark = pytest.mark.slow
ORDER = Order(task="bench", config=EngineConfig("transformers", model="/nowhere/at/all"), units=())

TELLS = """
import os, signal, sys, time
order = sys.stdin.buffer.read()
pipe = os.fdopen(int(sys.argv[1]), "wb", buffering=0)
print("a word for the log")
pipe.write(b'{"doing": "loading the model"}\\n')
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script in the place of the worker's own; its beginning is `TELLS`."""
    script = tmp_path / "stand_in.py"
    monkeypatch.setattr(process, "ENTRY", script)
    return script


def told(folder: Path, seconds: float = 60.0) -> list[Piece]:
    return list(pieces(ORDER, folder, seconds=seconds))


def test_what_a_process_tells_comes_piece_by_piece(tmp_path: Path, stand_in: Path) -> None:
    stand_in.write_text(
        TELLS
        + 'pipe.write(b\'{"notes": ["half\')\ntime.sleep(0.2)\n'
        + 'pipe.write(b\' a line"]}\\n{"finished": true}\\n\')\ntime.sleep(600)'
    )
    assert told(tmp_path) == [Piece(doing="loading the model"), Piece(notes=("half a line",)), Piece(finished=True)]


def test_a_process_that_dies_is_told_with_its_last_words(tmp_path: Path, stand_in: Path) -> None:
    stand_in.write_text(TELLS + "sys.stdout.flush()\nos.kill(os.getpid(), signal.SIGSEGV)")
    first, last = told(tmp_path)
    assert first.doing == "loading the model"
    assert last.trouble == "it died by SIGSEGV; its last output: a word for the log"
    assert not last.finished


def test_a_process_that_exits_without_a_word_is_told(tmp_path: Path, stand_in: Path) -> None:
    stand_in.write_text(TELLS + "sys.exit(7)")
    assert told(tmp_path)[-1].trouble.startswith("it exited with code 7")


def test_a_process_that_takes_too_long_is_ended_with_its_children(tmp_path: Path, stand_in: Path) -> None:
    stand_in.write_text(
        TELLS
        + "import subprocess\n"
        + "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        + 'pipe.write(b\'{"notes": ["%d"]}\\n\' % child.pid)\n'
        + "time.sleep(600)"
    )
    found = told(tmp_path, seconds=3.0)
    assert found[-1].trouble.startswith("it took longer than 3 s")
    assert gone(int(found[1].notes[0]))


def test_whoever_stops_listening_ends_the_process(tmp_path: Path, stand_in: Path) -> None:
    stand_in.write_text(TELLS + 'pipe.write(b\'{"notes": ["%d"]}\\n\' % os.getpid())\ntime.sleep(600)')
    listening = pieces(ORDER, tmp_path, seconds=60.0)
    next(listening)
    pid = int(next(listening).notes[0])
    with pytest.raises(KeyboardInterrupt):
        listening.throw(KeyboardInterrupt)
    assert gone(pid)


def test_an_interpreter_that_is_not_there_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"engine\.python: cannot run /nowhere/python"):
        list(pieces(ORDER, tmp_path, seconds=60.0, python="/nowhere/python"))


def test_a_model_that_is_not_there_is_told_by_the_real_worker(tmp_path: Path) -> None:
    (only,) = told(tmp_path)
    assert only.mistake
    assert "/nowhere/at/all" in only.trouble


def test_a_model_that_is_damaged_is_the_users_to_mend(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": ')
    (tmp_path / "model" / "model.safetensors").touch()
    (tmp_path / "model" / "chat_template.jinja").write_text("{{ messages }}")
    config = replace(ORDER.config, model=str(tmp_path / "model"))
    *_, last = pieces(replace(ORDER, config=config), tmp_path, seconds=120.0)
    assert last.mistake
    assert last.where == "engine.checkpoints"
    assert "cannot be loaded" in last.trouble
    assert "not a valid JSON file" in last.trouble


def gone(pid: int) -> bool:
    """Whether a process ends soon."""
    give_up = time.monotonic() + 10
    while time.monotonic() < give_up:
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False
