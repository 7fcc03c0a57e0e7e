"""Engines of an audit that fail: what they leave is kept under the audit's own name, and planted faults ask first."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from proctor.audit import read_answers
from proctor.audit.bench import EngineOrder, Seat, supervised
from proctor.audit.conduct import Audit
from proctor.audit.model import Sitting
from proctor.audit.probes import Probe
from proctor.audit.standing import conduct_audit, conduct_standing
from proctor.audit.traffic import Asked
from proctor.engines.config import engine_config
from proctor.rows import Event, Message, Request, TextPart, UserError
from proctor.spec import build_spec
from proctor.storage.folder import LocalFolder
from proctor.tasks.registry import make_task
from proctor.view.audit import write_audit_page
from tests.audit.planted import spec_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
STALL = {"kind": "stall", "rows": [1]}
CRASH = {"kind": "crash", "rows": [1], "times": 1}


def planted(folder: Path, *faults: dict[str, Any], ask: bool = True, **engine: Any) -> dict[str, Any]:
    """Three rows, asked one by one, by an engine with these faults."""
    plain = spec_of(folder, rows=3, batch_size=2, audit={"arms": ["repeat"], "faults": ask})
    return {
        **plain,
        "engine": {**plain["engine"], "faults": list(faults), **engine},
        "limits": {"stall_seconds": 2.0 if STALL in faults and ask else 60.0, "load_seconds": 60.0, "init_attempts": 1},
    }


def audited(folder: Path, spec: dict[str, Any]) -> Audit:
    return conduct_audit(build_spec(spec), None, folder / "run" / "audit")


@pytest.fixture(scope="module")
def stalled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Audit]:
    """Where an audit was made whose engine stalls, and what it found: its stalls take most of these tests' time."""
    place = tmp_path_factory.mktemp("stalled")
    return place, audited(place, planted(place, STALL))


def test_the_dump_of_a_stall_lies_in_the_audit_under_the_name_that_is_told(stalled: tuple[Path, Audit]) -> None:
    place, audit = stalled
    folder = place / "run" / "audit"
    dumps = sorted((folder / "stalls").glob("*.txt"))
    assert dumps
    assert all("Python stacks" in dump.read_text() for dump in dumps)
    told = [trouble for trouble in audit.troubles if trouble.startswith("engine.stalled: ")]
    for dump in dumps:
        assert any(f"stacks in audit/stalls/{dump.name}" in trouble for trouble in told), (dump, told)
        assert dump.with_name(f"{dump.stem.rpartition('-')[0]}.log").exists(), "the log of an engine that failed"
    failures = {found.failure[1] for found in read_answers(folder) if found.failure is not None}
    assert any("audit/stalls/" in text for text in failures)
    assert not any("/tmp" in text for text in (*failures, *audit.troubles))
    page = Path(write_audit_page(folder)).read_text()
    assert "What befell the engines" in page
    assert dumps[0].name in page


def test_faults_of_the_spec_do_not_hit_an_audit_unless_it_asks_for_them(tmp_path: Path) -> None:
    audit = audited(tmp_path, planted(tmp_path, STALL, {"kind": "blank", "every": 1}, ask=False))
    assert (audit.verdict.kind, audit.troubles, audit.disturbed) == ("no effect found", (), 0)
    answers = list(read_answers(tmp_path / "run" / "audit"))
    assert all(found.text and found.failure is None for found in answers)
    assert not (tmp_path / "run" / "audit" / "stalls").exists(), "engines that work leave nothing"


def test_a_fault_is_an_event_of_the_audit_and_not_of_the_run(tmp_path: Path) -> None:
    told: list[Event] = []
    run = LocalFolder(tmp_path / "run")
    spec = build_spec(planted(tmp_path, CRASH))
    conduct_standing(spec, "planted", "k", run, tell=told.append)
    assert {event.kind for event in told} == {"audit.engine.crashed"}
    assert all(event.rows == (1,) for event in told)
    assert [name for name in run.below("audit/stalls").names() if name.endswith(".log")]


def test_an_audit_whose_engine_cannot_start_keeps_its_log(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the engine does not work") as error:
        audited(tmp_path, planted(tmp_path, load_seconds=60.0) | {"limits": {"load_seconds": 2.0, "init_attempts": 1}})
    (dump,) = (tmp_path / "run" / "audit" / "stalls").glob("*.txt")
    assert f"audit/stalls/{dump.name}" in str(error.value)
    assert not (tmp_path / "run" / "audit" / "audit.json").exists()


def test_the_start_of_an_engine_is_no_part_of_what_an_arm_takes(tmp_path: Path) -> None:
    loading = 6.0
    spec = build_spec(planted(tmp_path, load_seconds=loading))
    order = EngineOrder(engine_config(spec.engine, spec.engine.checkpoints[0]), load_seconds=60.0)
    request = Request(id=0, prompt=(Message("user", (TextPart("What is on the road?"),)),))
    began = time.monotonic()
    with supervised(order) as engine:
        assert time.monotonic() - began >= loading
        seat = Seat(engine, [Probe(request, None)], make_task(spec.task, spec.source.columns))
        sat = seat.sit(Sitting("baseline", 0), [[Asked(request, True)]], warm=False)
    assert sat.seconds < loading
    assert sat.versions, "known from the first sitting on"


def test_an_earlier_audit_takes_its_own_dumps_along(tmp_path: Path, stalled: tuple[Path, Audit]) -> None:
    shutil.copytree(stalled[0], tmp_path, dirs_exist_ok=True)
    first = {path.name for path in (tmp_path / "run" / "audit" / "stalls").iterdir()}
    audited(tmp_path, planted(tmp_path))
    (earlier,) = (tmp_path / "run" / "earlier").iterdir()
    assert {path.name for path in (earlier / "audit" / "stalls").iterdir()} == first
    assert not (tmp_path / "run" / "audit" / "stalls").exists()
