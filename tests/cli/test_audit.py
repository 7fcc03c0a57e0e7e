"""``proctor audit`` as a person types it: what it says, what it leaves, and its exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from proctor.audit import read_audit
from proctor.cli.audit_text import earlier
from proctor.spec import build_spec
from tests.audit.planted import spec_of

pytestmark = pytest.mark.slow
FROM_3 = {"batch": 3, "nats": 0.5}


def proctor(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "proctor", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)


def json_lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def write_spec(folder: Path, *effects: dict[str, Any], **numerics: Any) -> Path:
    folder.mkdir(exist_ok=True)
    audit = {"arms": ["repeat", "batch"]}
    plain = spec_of(folder, *effects, rows=6, batch_size=4, audit=audit, **numerics)
    (folder / "spec.yaml").write_text(yaml.safe_dump(plain))
    return folder / "spec.yaml"


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A spec whose engine answers otherwise from batches of 3 on, and its audit."""
    spec = write_spec(tmp_path_factory.mktemp("audited") / "a", FROM_3)
    return spec, proctor("audit", spec)


def test_a_spec_alone_is_audited_and_the_verdict_comes_first(
    audited: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    spec, done = audited
    assert done.returncode == 4, done.stderr
    found = read_audit(spec.parent / "run")
    assert " ".join(done.stdout.split()).startswith(found.verdict.sentence)
    assert found.verdict.sentence.startswith("batch changes outputs from 3 on, not up to 2 (")
    for word in (
        "batch=4",
        "share that is equal",
        "same token leads",
        "Replayed, with the baseline's tokens",
        "remedy",
        "not tried",
        "evidence",
    ):
        assert word in done.stdout
    assert done.stdout.endswith(f"page:  {spec.parent}/run/audit/audit.html\n")
    assert "1 of 8  " in done.stderr
    names = sorted(path.name for path in (spec.parent / "run" / "audit").iterdir())
    assert names == [
        "answers.parquet",
        "audit.html",
        "audit.json",
        "replayed.parquet",
        "tokens.parquet",
        "verdict.json",
    ]


def test_nothing_found_is_exit_code_0_and_json_is_one_object_a_line(tmp_path: Path) -> None:
    done = proctor("audit", write_spec(tmp_path / "quiet"), "--json", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    *sittings, last = json_lines(done)
    assert {line["event"] for line in sittings} == {"sitting"}
    assert [line["done"] for line in sittings] == list(range(1, len(sittings) + 1))
    assert (last["event"], last["exit_code"], last["verdict"]["kind"]) == ("audit", 0, "no effect found")
    assert (last["directory"], last["page"]) == (str(tmp_path / "out"), str(tmp_path / "out" / "audit.html"))
    assert not (tmp_path / "quiet" / "run").exists()


def test_a_dry_run_shows_the_design_and_starts_nothing(audited: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    spec, _ = audited
    before = sorted(spec.parent.rglob("*"))
    done = proctor("audit", "--dry-run", spec)
    assert done.returncode == 0, done.stderr
    assert sorted(spec.parent.rglob("*")) == before
    assert "audit of planted: 6 rows, 4 arms, 2 rounds" in done.stdout
    assert "takes: 2 engine starts, 8 sittings, " in done.stdout
    assert "sit once more with the baseline's tokens forced: replays may add " in done.stdout
    assert "dtype" in done.stdout
    assert "left out by audit.arms" in done.stdout
    assert "an earlier audit here took " in done.stdout
    (line,) = json_lines(proctor("audit", spec, "--dry-run", "--json", "--set", "audit.rounds=3"))
    assert (line["event"], line["cost"]["sittings"], line["earlier"] is None) == ("audit_design", 12, False)
    assert [arm["name"] for arm in line["design"]["arms"]] == ["baseline", "repeat", "batch=2", "batch=4"]


def test_a_stored_audit_is_shown_again(audited: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    spec, done = audited
    (spec.parent / "run" / "audit" / "audit.html").unlink()
    again = proctor("audit", "show", spec.parent / "run")
    assert (again.returncode, again.stdout) == (0, done.stdout)
    assert (spec.parent / "run" / "audit" / "audit.html").exists()


def test_two_audits_are_compared(audited: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    spec, _ = audited
    later = write_spec(tmp_path / "b", FROM_3, {"nats": 2.0, "every": 2})
    assert proctor("audit", later, "--out", tmp_path / "later").returncode == 4
    same = proctor("audit", "diff", spec.parent / "run", spec.parent / "run")
    assert (same.returncode, "No difference: 6 answers are the same" in same.stdout) == (0, True)
    other = proctor("audit", "diff", spec.parent / "run", tmp_path / "later")
    assert other.returncode == 4
    assert other.stdout.startswith("Different: the answers differ (")
    for word in ("fingerprint", "numerics.effects", "old answer", "new answer", "verdict of the old audit"):
        assert word in other.stdout
    (line,) = json_lines(proctor("audit", "diff", spec.parent / "run", tmp_path / "later", "--json"))
    assert (line["event"], line["exit_code"], line["arm"]["layer"]) == ("audit_diff", 4, "version")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("SPEC", "--set", "audit.arms=[bacth]"),
            "audit.arms: there is no knob 'bacth' at this engine (there are: rep",
        ),
        (("SPEC", "--set", "audit.sample=0"), "audit.sample"),
        (("SPEC", "--checkpoint", "x"), "no checkpoint 'x' in this spec (there are: planted)"),
        (("SPEC", "--set", "run_dir=s3://bucket/run"), "give a local directory with --out"),
        (("SPEC", "--out", "RUN/audit"), "there is an audit here already"),
        (("SPEC.nothing",), "cannot read the spec"),
        (("show", "/nowhere"), "no audit here (no audit.json)"),
        (("diff", "RUN", "/nowhere"), "/nowhere: no audit here"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: tuple[str, ...], said: str, audited: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    spec, _ = audited
    run = str(spec.parent / "run")
    done = proctor("audit", *(word.replace("SPEC", str(spec)).replace("RUN", run) for word in arguments))
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_audit_leaves_no_engine_and_nothing_half_written(number: signal.Signals, tmp_path: Path) -> None:
    spec = write_spec(tmp_path / "slow", FROM_3)
    command = [sys.executable, "-m", "proctor", "audit", str(spec), "--set", "engine.row_ms=1000"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    watched = psutil.Process(running.pid)
    engines: list[psutil.Process] = []
    give_up = time.monotonic() + 60
    while not engines and time.monotonic() < give_up and running.poll() is None:
        engines = [child for child in watched.children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE]
        time.sleep(0.05)
    time.sleep(1.0)
    engines = watched.children(recursive=True)
    assert engines
    running.send_signal(number)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert out == ""
    assert err.splitlines()[-1] == "interrupted: nothing is written"
    gone, alive = psutil.wait_procs(engines, timeout=20)
    assert (len(gone), alive) == (len(engines), [])
    assert not (tmp_path / "slow" / "run").exists()


def test_the_estimate_is_of_the_same_place(tmp_path: Path) -> None:
    spec = build_spec(spec_of(tmp_path, rows=4, batch_size=4))
    assert earlier(spec, None) is None
    assert earlier(spec, str(tmp_path)) is None


def test_other_groups_still_have_their_default() -> None:
    done = proctor("trace", "/nowhere/x.sqlite")
    assert done.returncode == 1
    assert "/nowhere/x.sqlite" in done.stderr
    assert "attention" in proctor("audit", "--help").stdout
    assert "Usage: python -m proctor audit" in proctor("audit").stdout
