from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import proctor
from proctor.rows import UserError
from proctor.spec.source import ColumnsSpec
from proctor.spec.task import PythonTaskSpec
from proctor.tasks.marking import mark
from proctor.tasks.registry import make_task
from tests.tasks.helpers import records, sample, summarise

MODULE = '''
import pyarrow as pa
from proctor.rows import Message, TextPart
from proctor.tasks import Metric, ParseError, Summary

class Length:
    """Marks the length of an answer."""

    def __init__(self, least, *, unit="letters"):
        if least < 0:
            raise ValueError("least must not be negative")
        self.least, self.unpicklable = least, lambda: unit

    @property
    def columns(self):
        return {"length": pa.int32()}

    def prompt(self, sample):
        return (Message("user", (TextPart(f"More than {self.least}?"),)),)

    def target(self, sample):
        return None

    def parse(self, text):
        if len(text) < self.least:
            raise ParseError("too short")
        return len(text)

    def score(self, parsed, target):
        return {"length": parsed}

    def summary(self, records, expected):
        (mean, n) = records.aggregate("avg(length), count(length)").fetchall()[0]
        return Summary("length", (Metric("length", mean, None, None, n, expected),))

class Clash(Length):
    columns = {"answer": pa.string()}

class Untyped(Length):
    columns = {"length": "whole"}

class Half:
    def prompt(self, sample):
        return ()

number = 3
'''


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_tasks.py").write_text(MODULE)
    (tmp_path / "my_broken.py").write_text("import my_missing_dependency\n")
    (tmp_path / "my_typo.py").write_text("def f(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("my_tasks", "my_broken", "my_typo"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def make(python: str = "my_tasks:Length", **options: Any) -> Any:
    return make_task(PythonTaskSpec(kind="python", python=python, options=options), ColumnsSpec())


def test_a_class_in_the_current_directory_is_a_task() -> None:
    task = make(least=2)
    assert task.prompt(sample())[0].parts[0].text == "More than 2?"
    assert mark(task, "four", task.target(sample())).scores == {"length": 4}
    assert mark(task, "x", None).parse_error == "too short"
    _, metrics = summarise(task, records(task, [("four", None), ("x", None)]))
    assert (metrics["length"].value, metrics["length"].n) == (4, 1)


def test_is_picklable_even_when_the_users_instance_is_not(
    module: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pickled = tmp_path_factory.mktemp("elsewhere") / "task.pickle"
    pickled.write_bytes(pickle.dumps(make(least=2)))
    code = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).parse('four'))"
    command, path = [sys.executable, "-c", code, str(pickled)], str(Path(proctor.__file__).parent.parent)
    done = subprocess.run(command, cwd=pickled.parent, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE)
    assert done.stdout == b"4\n"


@pytest.mark.parametrize(
    ("python", "options", "message"),
    [
        ("no_such:Thing", {}, "no_such:Thing: there is no module 'no_such' "),
        ("my_tasks.deep:Thing", {}, "there is no module 'my_tasks.deep'"),
        ("my_broken:Thing", {}, "importing 'my_broken' failed: No module named 'my_missing_dependency'"),
        ("my_typo:Thing", {}, "importing 'my_typo' failed: SyntaxError"),
        ("my_tasks:Lenght", {}, "module 'my_tasks' has no class 'Lenght' (its classes: Clash, Half, Length"),
        ("my_tasks:number", {}, "'number' is not a class"),
        ("my_tasks:Half", {}, "has no method target, parse, score, summary"),
        ("my_tasks:Length", {}, "task.options do not fit the class: missing a required argument: 'least'"),
        ("my_tasks:Length", {"least": 1, "most": 2}, "got an unexpected keyword argument 'most'"),
        ("my_tasks:Length", {"least": -1}, "could not be made: ValueError: least must not be negative"),
        ("my_tasks:Clash", {"least": 1}, "task columns clash with record fields or each other: answer"),
        ("my_tasks:Untyped", {"least": 1}, "its columns cannot be used: ValueError"),
    ],
)
def test_every_mistake_is_one_clear_line(python: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        make(python, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_module_that_exits_does_not_end_the_command(module: Path) -> None:
    (module / "my_exit.py").write_text("raise SystemExit(0)\n")
    with pytest.raises(UserError, match="importing 'my_exit' failed: SystemExit: 0"):
        make("my_exit:Thing")
