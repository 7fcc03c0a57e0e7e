"""What ``from proctor.trace import ...`` gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import proctor.trace
from proctor.trace import census, diff, export, gaps, open_trace, overlap, stake_out, summary, timeline
from tests.trace.exports import Export


def test_every_name_that_is_offered_exists_and_no_other_is_bound_to_load() -> None:
    homes = proctor.trace._HOMES.keys() | set(proctor.trace._CALLED)
    assert sorted(proctor.trace.__all__) == sorted({"Trace", "open_trace", *homes})
    for name in proctor.trace.__all__:
        assert callable(getattr(proctor.trace, name)), name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        proctor.trace.nonsense  # noqa: B018


@pytest.mark.parametrize("name", proctor.trace._CALLED)
def test_a_package_that_is_called_has_the_function(name: str) -> None:
    package = sys.modules[f"proctor.trace.{name}"]
    assert isinstance(package, ModuleType)
    home, function = vars(package)["_home"], vars(package)["_function"]
    assert function == name
    assert callable(getattr(sys.modules.get(home) or __import__(home, fromlist=[name]), name))


def test_the_functions_answer(tmp_path: Path) -> None:
    files = []
    for number in (1, 2):
        made = Export(tmp_path / f"{number}.sqlite").gpu().launch("a", 0, 1_000, 5_000 * number)
        files.append(made.launch("b", 6_000, 20_000, 30_000).close())
    with open_trace(files[0]) as a, open_trace(files[1]) as b:
        assert census(a).total == 4_000 + 10_000
        assert gaps(a).devices[0].idle == 15_000
        assert overlap(a).devices[0].compute == 14_000
        assert stake_out(a, "b").launches == 1
        assert summary(a).calls == 2
        assert [event.name for event in timeline(a, kinds=["kernel"])] == ["a", "b"]  # type: ignore[list-item]
        assert {total.name: total.a for total in diff(a, b).totals}["total"] == 14_000
        assert export(a, tmp_path / "a.csv").events == 4


def test_importing_the_room_stays_light() -> None:
    heavy = ("numpy", "pyarrow", "duckdb", "rich", "proctor.trace.work", "proctor.trace.names")
    code = f"import sys, proctor.trace; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
