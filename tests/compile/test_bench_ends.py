"""When a bench runs no further process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.compile import bench
from proctor.compile.bench import Options, measure
from proctor.compile.collected import Collected
from proctor.compile.model import Timing
from proctor.compile.orders import Order, Piece, Workload
from proctor.compile.verdict import verdict
from proctor.rows import UserError
from proctor.spec import RunSpec, build_spec
from tests.compile.invented import ARMS, SHAPES

NO_COMPILER = "blocks: the backend inductor cannot compile blocks: InvalidCxxCompiler: No working C++ compiler found"
NOTHING = "none of the targets could be compiled: nothing was timed"
FOUND = Piece(subject={"architecture": "Tiny"}, targets={"blocks": 3}, shapes=SHAPES[:1])
END = Piece(finished=True)
WITHOUT = [FOUND, Piece(doing="compiling blocks"), Piece(notes=(NO_COMPILER,)), Piece(notes=(NOTHING,)), END]


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunSpec:
    monkeypatch.setattr(bench, "workload", lambda *_: Workload(units=(), rows=2000))
    return build_spec(
        {
            "run_dir": str(tmp_path / "run"),
            "source": {"kind": "jsonl", "path": str(tmp_path / "rows.jsonl")},
            "engine": {"kind": "transformers", "checkpoints": ["model"]},
            "task": {"kind": "exact"},
        }
    )


def timed(order: Order) -> list[Piece]:
    timings = [Timing("blocks", SHAPES[0].name, arm, order.process, number, 0.01) for arm in ARMS for number in (0, 1)]
    return [FOUND, Piece(timings=tuple(timings)), END]


def processes(monkeypatch: pytest.MonkeyPatch, told: Any) -> list[int]:
    """Has each process of a bench tell what `told` gives for its order; returns the processes that were run."""
    run: list[int] = []

    def pieces(order: Order, *_: object, **__: object) -> Iterator[Piece]:
        run.append(order.process)
        yield from told(order)

    monkeypatch.setattr(bench, "pieces", pieces)
    return run


def test_where_the_first_process_could_compile_nothing_no_other_is_started(
    spec: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a C++ compiler each would fail alike, after minutes."""
    run, collected = processes(monkeypatch, lambda _: WITHOUT), Collected()
    found = measure(spec, Options(processes=3, most=6), collected=collected)
    assert run == [0]
    assert not collected.anything
    assert (found.timings, found.targets) == ((), {"blocks": 3})
    assert {NO_COMPILER, NOTHING} <= set(found.notes)
    judged = verdict(found)
    assert judged.best == ()
    assert {one.decision for one in judged.findings} <= {"inconclusive"}


def test_what_was_timed_once_is_timed_in_every_process(spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a later one can compile nothing."""
    run = processes(monkeypatch, lambda order: timed(order) if order.process != 1 else WITHOUT)
    found = measure(spec, Options(processes=3))
    assert run == [0, 1, 2]
    assert {timing.process for timing in found.timings} == {0, 2}
    assert NO_COMPILER in found.notes


def test_a_first_process_that_does_not_end_its_work_is_told(spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    run = processes(monkeypatch, lambda _: [FOUND, Piece(trouble="it died by SIGSEGV")])
    with pytest.raises(UserError, match="process 0 did not end its work: it died by SIGSEGV"):
        measure(spec, Options(processes=3))
    assert run == [0]
