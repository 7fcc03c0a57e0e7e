from __future__ import annotations

import socket
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

from proctor.rows import UserError
from proctor.runner import prometheus
from proctor.runner.begin import begin
from proctor.runner.exam import Exam
from proctor.runner.exported import FILE, Exported, series_of
from proctor.runner.prometheus import Exporter
from proctor.runner.snapshot import CheckpointProgress, Progress
from proctor.spec import differences
from tests.runner.helpers import MakeSpec

PROGRESS = Progress(
    {
        'odd "name"': CheckpointProgress(
            total=100, before=10, done=60, answered=45, errors=Counter({"infer.empty": 5}), output_tokens=900
        ),
        "b": CheckpointProgress(total=100, retries=Counter({"infer.unreachable": 2})),
    },
    seconds=12.5,
    rate=4.0,
    eta_seconds=35.0,
    events={"engine.restarted": 3, "engine.crashed": 3},
)


def lines(text: bytes) -> list[str]:
    return [line for line in text.decode().splitlines() if not line.startswith("#")]


def test_a_run_is_told_in_prometheus_own_text() -> None:
    exporter = Exporter(lambda: series_of(PROGRESS, "running"), {"run": "night"})
    told = lines(exporter.text())
    assert r'proctor_rows_total{checkpoint="odd \"name\"",outcome="answered",run="night"} 45.0' in told
    assert r'proctor_rows_total{checkpoint="odd \"name\"",outcome="infer.empty",run="night"} 5.0' in told
    assert r'proctor_rows_done{checkpoint="odd \"name\"",run="night"} 60.0' in told
    assert 'proctor_rows_expected{checkpoint="b",run="night"} 100.0' in told
    assert 'proctor_rows_retried_total{checkpoint="b",kind="infer.unreachable",run="night"} 2.0' in told
    assert 'proctor_engine_restarts_total{run="night"} 3.0' in told
    assert 'proctor_eta_seconds{run="night"} 35.0' in told
    assert 'proctor_run_state{run="night",state="running"} 1.0' in told
    assert len(told) == len(set(told))
    no_estimate = Exporter(lambda: series_of(Progress({}), "running"), {"run": "night"})
    assert "proctor_eta_seconds" not in no_estimate.text().decode()


def test_it_is_served_on_this_machine_only_until_it_is_closed() -> None:
    exporter = Exporter(lambda: series_of(PROGRESS, "running"), {"run": "night"})
    port = exporter.serve(0)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as reply:
        assert b'proctor_rate{run="night"} 4.0' in reply.read()
        assert reply.headers["Content-Type"].startswith("text/plain")
    listening = Path("/proc/net/tcp").read_text()
    assert f"0100007F:{port:04X} 00000000:0000 0A" in listening
    assert f"00000000:{port:04X} 00000000:0000 0A" not in listening
    exporter.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=60).close()


def test_a_run_writes_its_metrics_until_the_directory_is_not_its_own_any_more(make_spec: MakeSpec) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        exam = Exam.of(make_spec(metrics={"port": taken.getsockname()[1]}))
        begin(exam, fresh=False)
        exported, seen = Exported(exam), list[Progress]()
        with exported.exporting():
            observe = exported.beside(seen.append)
            observe(PROGRESS)
            observe(PROGRESS)
        assert seen == [PROGRESS, PROGRESS]
    file = exam.run.root / FILE
    assert "proctor_rate" in file.read_text()
    (event,) = exam.run.events()
    assert event.kind == "metrics.failed"
    assert "in use" in event.message

    file.unlink()
    lost, reasons = Exported(exam), list[str]()
    lost.or_lose(reasons.append)("another driver")
    with lost.exporting():
        lost.beside(seen.append)(PROGRESS)
    assert (reasons, file.exists()) == (["another driver"], False)

    begin(exam, fresh=True)
    assert differences(exam.spec, make_spec()) == []


def test_a_run_without_metrics_writes_none_and_needs_no_library(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "find_spec", lambda _name: None)
    exam = Exam.of(make_spec())
    begin(exam, fresh=False)
    exported = Exported(exam)
    with exported.exporting():
        exported.beside(lambda _progress: None)(PROGRESS)
    assert not (exam.run.root / FILE).exists()
    with pytest.raises(UserError, match=r"pip install 'proctor\[metrics\]'"):
        Exported(Exam.of(make_spec(metrics={})))
