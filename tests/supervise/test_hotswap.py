"""An engine goes from checkpoint to checkpoint, and serves none that is not proven."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.engines import EngineConfig
from proctor.engines.fingerprint_store import FingerprintStore
from proctor.engines.weights import Weights
from proctor.rows import UserError
from proctor.storage.folder import open_folder
from proctor.supervise.hotswap import HotSwap, SwapSetup
from tests.supervise.helpers import Supervised, ask, failures, scripted

Start = Callable[..., Supervised]


def checkpoint(folder: Path, name: str, **options: Any) -> EngineConfig:
    config = scripted(folder, answer="{checkpoint} {row_id}", **options)
    return msgspec.structs.replace(config, model=name)


class Course:
    """An engine, its swaps, and what they told."""

    def __init__(
        self, supervise: Start, folder: Path, first: EngineConfig, *, beside: bool = False, **settings: Any
    ) -> None:
        self.one = supervise(first, **settings)
        self.folder = open_folder(str(folder / "fingerprints"))
        supervisor = self.one.supervisor
        self.hot = HotSwap(
            supervisor,
            first,
            SwapSetup(self.folder, beside),
            supervisor._settings,
            self.one.events.append,
            name="e",
            seen={},
        )

    def serve(self, config: EngineConfig, rows: int = 3) -> list[str | None]:
        """Texts that the engine answers with once it is brought to `config`."""
        self.hot.to(config)
        answers = self.one.answers(range(rows))
        assert failures(answers) == {}
        return [answers[row].text for row in range(rows)]

    def known(self, *configs: EngineConfig) -> None:
        """Starts an engine for each, so that there are fingerprints."""
        for config in configs:
            assert self.serve(config)[0] == f"{config.model} 0"


def texts(name: str) -> list[str]:
    return [f"{name} {row}" for row in range(3)]


@pytest.fixture
def course(supervise: Start, tmp_path: Path) -> Callable[..., Course]:
    def start(first: EngineConfig, **settings: Any) -> Course:
        return Course(supervise, tmp_path, first, **settings)

    return start


def test_a_checkpoint_that_is_not_known_starts_an_engine_and_is_swapped_in_from_then_on(
    course: Callable[..., Course], tmp_path: Path
) -> None:
    a, b = checkpoint(tmp_path, "a"), checkpoint(tmp_path, "b")
    run = course(a)
    assert run.serve(a) == texts("a")
    assert run.serve(b) == texts("b")
    assert run.one.supervisor.counters.starts == 2
    assert "no started engine" in run.one.event("engine.swap_skipped").message
    for config in (a, b, a, b):
        assert run.serve(config) == texts(config.model)
    assert run.one.supervisor.counters.starts == 2
    assert run.one.kinds().count("engine.swapped") == 4
    assert run.one.supervisor.counters.restarts == 0
    assert "engine.restarted" not in run.one.kinds()


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        ("refuse", "refused"),
        ("raise", "failed"),
        ("crash", "failed"),
        ("stale", "not the checkpoint's"),
        ("hang", "failed: no progress"),
        ("stop", "failed: no progress"),
    ],
)
def test_whatever_a_swap_does_the_right_checkpoint_answers(
    course: Callable[..., Course], tmp_path: Path, plan: str, told: str
) -> None:
    a, b = (checkpoint(tmp_path, name, swap=plan, swap_at=["b"]) for name in "ab")
    run = course(a, load_seconds=3.0)
    run.known(a, b, a)
    assert run.serve(b) == texts("b")
    failed = run.one.event("engine.swap_failed")
    assert told in failed.message
    assert failed.action == "started anew with the checkpoint"
    assert run.serve(a) == texts("a")
    assert run.one.kinds().count("engine.swapped") == 2  # both to a


def test_a_second_engine_beside_makes_the_fingerprint_that_is_missing(
    course: Callable[..., Course], tmp_path: Path
) -> None:
    a, b = checkpoint(tmp_path, "a"), checkpoint(tmp_path, "b")
    run = course(a, beside=True)
    run.hot.to(a)
    run.hot.read_ahead(b)
    assert run.serve(b) == texts("b")
    assert run.one.supervisor.counters.starts == 1
    assert run.one.kinds().count("engine.swapped") == 1
    assert len(run.folder.names()) == 2


def test_a_replica_that_refuses_does_not_hold_up_the_one_that_does_not(
    course: Callable[..., Course], tmp_path: Path
) -> None:
    a, b = (checkpoint(tmp_path, name, swap="refuse", swap_at=["b"], swap_times=1) for name in "ab")
    runs = [course(a), course(a)]
    runs[0].known(a, b, a)  # b is started here, and not asked of anybody
    runs[1].known(a)
    for run in runs:
        assert run.serve(b) == texts("b")
    refusing, healthy = (run.one.kinds() for run in runs)
    assert (refusing.count("engine.swapped"), refusing.count("engine.swap_failed")) == (1, 1)
    assert (healthy.count("engine.swapped"), healthy.count("engine.swap_failed")) == (1, 0)
    assert [run.one.supervisor.counters.starts for run in runs] == [3, 1]


def test_engines_that_do_not_answer_alike_are_not_swapped(course: Callable[..., Course], tmp_path: Path) -> None:
    a, b = checkpoint(tmp_path, "a"), checkpoint(tmp_path, "b")
    run = course(a)
    run.known(a, b)
    names = run.folder.names()
    stored = [(name, FingerprintStore(run.folder).get(name.removesuffix(".json"))) for name in names]
    for name, found in stored:
        assert found is not None
        other = [msgspec.structs.replace(answer, text=f"{answer.text}!") for answer in found.answers]
        run.folder.delete(name)
        FingerprintStore(run.folder).put(name.removesuffix(".json"), type(found)(tuple(other)))
    assert run.serve(a) == texts("a")  # not proven, so started anew, and then it still differs
    assert "no swap can be proven" in run.one.event("engine.unsteady").message
    assert run.serve(b) == texts("b")
    assert run.one.kinds().count("engine.swapped") == 0
    assert run.one.supervisor.counters.starts == 4


def test_a_checkpoint_that_cannot_be_read_ahead_is_started(supervise: Start, tmp_path: Path) -> None:
    def read(config: EngineConfig) -> Weights:
        if config.model == "b":
            raise UserError("its files are pickles", where="b")
        return Weights(config.model)

    a, b = checkpoint(tmp_path, "a"), checkpoint(tmp_path, "b")
    one = supervise(a)
    setup = SwapSetup(open_folder(str(tmp_path / "fingerprints")))
    hot = HotSwap(one.supervisor, a, setup, one.supervisor._settings, one.events.append, name="e", seen={}, read=read)
    for config in (a, b, a, b):
        hot.to(config)
        assert one.answers([7])[7].text == f"{config.model} 7"
    assert "its files are pickles" in one.event("engine.swap_skipped").message
    assert one.kinds().count("engine.swapped") == 1


def test_rows_under_way_keep_the_checkpoint(supervise: Start, tmp_path: Path) -> None:
    one = supervise(checkpoint(tmp_path, "a", row_ms=300))
    future = one.supervisor.submit(ask(1))
    asked = one.supervisor.succeed(checkpoint(tmp_path, "b"))
    with pytest.raises(RuntimeError, match="under way"):
        asked.result(timeout=20)
    assert future.result(timeout=20).text == "a 1"


def test_a_supervisor_that_is_closed_says_so(supervise: Start, tmp_path: Path) -> None:
    one = supervise(checkpoint(tmp_path, "a"))
    one.supervisor.close()
    assert one.supervisor.succeed(checkpoint(tmp_path, "b")).result(timeout=20).how == "failed"
