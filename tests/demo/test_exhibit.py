from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import duckdb
import pytest

from proctor.demo.dataset import CORRUPT_ROWS
from proctor.demo.exhibit import planted, prepare_demo
from proctor.results import RunDir
from tests.browser.conftest import visiting
from tests.browser.crawl import pages
from tests.browser.serving import served
from tests.chromium import launched

ROWS = 150
CORRUPT = [row for row in CORRUPT_ROWS if row < ROWS]


def test_preparing_again_keeps_what_is_there_and_other_sizes_are_drawn_anew(tmp_path: Path) -> None:
    spec, file = prepare_demo(tmp_path, 20)
    stamp = (tmp_path / "scenes" / "index.json").stat().st_mtime_ns
    assert prepare_demo(tmp_path, 20)[0] == spec
    assert (tmp_path / "scenes" / "index.json").stat().st_mtime_ns == stamp
    prepare_demo(tmp_path, 21)
    assert (tmp_path / "scenes" / "index.json").stat().st_mtime_ns != stamp
    assert file == tmp_path / "demo.yaml"
    assert [Path(c.path).name for c in spec.engine.checkpoints] == [c.name for c in spec.engine.checkpoints]


def test_what_is_planted_is_said(tmp_path: Path) -> None:
    spec, _ = prepare_demo(tmp_path, 20)
    lines = planted(spec, 20)
    assert lines[0] == "1 images that cannot be decoded (rows 13)"
    assert [line.split()[0] for line in lines[1:]] == ["crash", "stall", "crash"]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `proctor demo` left, with what it said as ``said.json``."""
    out = tmp_path_factory.mktemp("demo") / "demo-run"
    command = [sys.executable, "-m", "proctor", "demo", "--rows", str(ROWS), "--out", str(out), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=880)
    assert done.returncode == 0, done.stderr
    (out / "said.json").write_text(done.stdout.splitlines()[-1])
    return out


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.model
@pytest.mark.timeout(900)
def test_the_demo_accounts_for_every_row_and_shows_a_learning_curve(demo: Path) -> None:
    outcome = json.loads((demo / "said.json").read_text())
    ledgers = outcome["reconciliation"]["checkpoints"]
    assert [ledger["errors"].get("prepare.decode") for ledger in ledgers] == [len(CORRUPT)] * 4
    assert ledgers[-1]["errors"] == {"prepare.decode": len(CORRUPT), "infer.crashed": 1}
    assert all(ledger["answered"] + sum(ledger["errors"].values()) == ROWS for ledger in ledgers)
    exact = [next(m for m in s["metrics"] if m["name"] == "exact")["value"] for s in outcome["metrics"].values()]
    assert exact == sorted(exact)
    assert exact[0] < 0.2 < 0.5 < exact[-1]
    run = RunDir(Path(outcome["run_dir"]))
    kinds = {event.kind for event in run.events()}
    assert {"engine.crashed", "engine.stalled", "quarantine.verdict"} <= kinds
    with duckdb.connect() as connection:
        bad = run.records(connection).filter("(answer IS NULL) = (error_kind IS NULL)").fetchall()
    assert bad == []
    assert "<html" in Path(outcome["report"]).read_text()


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.model
@pytest.mark.browser
@pytest.mark.timeout(900)
def test_a_person_looks_at_the_demo(demo: Path) -> None:
    with launched() as browser, served(demo) as origin, visiting(browser, origin) as visitor:
        visitor.guard.expect(404)  # the images that are corrupt
        opened = dict(pages(visitor, ["/"]))
        assert set(opened.values()) == {200}
        assert {urlsplit(address).path for address in opened} >= {"/", "/run", "/rows", "/row", "/stalls"}
        page = visitor.visit("/rows?in=demo-run&path=run&filter=exact&sort=ade")
        page.locator("tbody th a").first.click()
        page.wait_for_function("[...document.querySelectorAll('.frames img')].every(one => one.naturalWidth > 0)")
        assert page.locator("svg.seen circle.answer").count() > 0
        page = visitor.visit("/run?in=demo-run&path=run")
        page.locator("a.chip", has_text="prepare.decode").click()
        assert set(page.locator("tbody th").all_inner_texts()) == {str(row) for row in CORRUPT}
