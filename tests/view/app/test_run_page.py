"""The page of a run: how it stands, where its cells and faults lead, and what its plan foretold."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from starlette.testclient import TestClient

from proctor.results import RunDir
from proctor.rows import Event
from proctor.view.browse.confusions import cell_filter, has_filter, text_columns
from tests.view.app.asking import ask, client_of, links
from tests.view.helpers import make_run
from tests.view.test_planned import PLAN

GOOD = "in=runs&path=good/night-drive"


def test_the_cells_of_a_confusion_matrix_lead_to_just_their_rows(client: TestClient) -> None:
    _, page = ask(client, f"/run?{GOOD}")
    cells = [link for link in links(page, "rows") if "surface_target" in link and "step-6400" in link]
    assert len(cells) > 2
    counts = []
    for link in cells:
        text, _ = ask(client, link)
        found = re.search(r"([\d,]+) of 400 records", text)
        assert found is not None
        counts.append(int(found[1]))
        assert parse_qs(urlsplit(link).query)["filter"][0].startswith('checkpoint = "step-6400" and surface_target = ')
    text, _ = ask(client, f"/run?{GOOD}")
    for count, link in zip(counts, cells, strict=True):
        cell = text[text.index(link.replace("&", "&amp;")) :][:400]
        assert f": {count} of " in cell  # what the tooltip says


def test_the_contents_name_every_section_and_no_other(client: TestClient) -> None:
    text, page = ask(client, f"/run?{GOOD}")
    sections = re.findall('<section id="([a-z-]+)">', text)
    assert [link[1:] for link in page.links if link.startswith("#")] == sections
    assert sections == ["ledger", "errors", "scores", "confusion", "timeline", "events", "provenance"]


def test_the_ledger_leads_to_the_rows_of_each_checkpoint_and_error(client: TestClient) -> None:
    text, page = ask(client, f"/run?{GOOD}")
    ledger = text[text.index('<section id="ledger">') :].split("</section>")[0]
    asked = {
        parse_qs(urlsplit(link).query)["filter"][0]: link
        for link in links(page, "rows")
        if "filter" in link and link.replace("&", "&amp;") in ledger
    }
    assert len(asked) == 4 + 5  # four checkpoints; one of them has a second kind of error
    for filter_, told in {
        'checkpoint = "step-6400"': "100 of 400 records",
        'checkpoint = "step-6400" and error.kind = "infer.crashed"': "1 of 400 records",
        'checkpoint = "step-6400" and error.kind = "prepare.decode"': "2 of 400 records",
    }.items():
        assert told in ask(client, asked[filter_])[0]


def test_a_matrix_of_other_columns_leads_nowhere(tmp_path: Path) -> None:
    run = make_run(tmp_path, 4)
    assert {"surface", "surface_target"} <= text_columns(run)
    assert has_filter(text_columns(run), "surface")
    assert not has_filter(text_columns(run), "exact")
    odd = cell_filter('a"b', "the way", "x\\", 'y" or true')
    assert odd == 'checkpoint = "a\\"b" and `the way_target` = "x\\\\" and `the way` = "y\\" or true"'
    for part in (run.root / "results").iterdir():
        pq.write_table(pa.table({"row_id": [0], "surface": [1], "surface_target": ["wet"]}), part)
    assert text_columns(run) == {"surface_target"}
    for part in (run.root / "results").iterdir():
        part.write_bytes(b"nothing")
    assert text_columns(run) == frozenset()
    assert text_columns(RunDir(tmp_path / "none")) == frozenset()


def test_a_stall_leads_to_its_stacks_and_nothing_leads_elsewhere(tmp_path: Path) -> None:
    run = make_run(tmp_path, 2)
    base = f"in={tmp_path.name}&path=night-drive"
    (run.root / "stalls" / "host:1-1.txt").write_text("Thread 0x1 <b>\n  File wire.py, line 164\x1b[31m")
    for number in (1, 2):
        dump = f"/elsewhere/stalls/host:1-{number}.txt"
        run.append_event(Event("engine.stalled", 1_772_000_100.0, data={"dump": dump}, message="no progress"))
    with client_of(tmp_path) as client:
        text, page = ask(client, f"/run?{base}")
        assert text.count(">stack dump</a>") == 1  # the other one is not there
        listed = next(link for link in links(page, "stalls") if "file" not in link)
        shown = next(link for link in links(page, "stalls") if "file" in link)
        text, _ = ask(client, shown)
        assert "Thread 0x1 &lt;b&gt;" in text
        assert "\x1b" not in text
        text, files = ask(client, listed)
        assert links(files, "stalls") == [shown]
        for bad in ("../spec.yaml", "host:1-2.txt", "spec.yaml", "%00.txt"):
            assert "This cannot be shown" in ask(client, f"/stalls?{base}&file={bad}", 404)[0]
        (run.root / "stalls" / "host:1-1.txt").unlink()
        assert "None here" in ask(client, f"/stalls?{base}")[0]


def test_a_run_under_way_says_how_fast_it_is_and_what_was_foretold(tmp_path: Path) -> None:
    run = make_run(tmp_path, 4)
    base = f"in={tmp_path.name}&path=night-drive"
    counts = {"total": 4, "before": 0, "done": 3, "answered": 2, "errors": {"prepare.decode": 1}}
    status = {"state": "running", "time": 1_772_000_200.0, "seconds": 250.0, "rate": 12.345, "eta_seconds": 750}
    run.write("status", {**status, "active": ["step-0100", 2], "checkpoints": {"step-0100": counts}})
    run.write("plan", PLAN)
    with client_of(tmp_path) as client:
        with run.locked(lambda _reason: None):
            text, page = ask(client, f"/run?{base}")
            assert "it closed before and goes on" in ask(client, "/")[0]
            run.write("status", {**status, "checkpoints": {"step-0100": {**counts, "done": 4}}})
            assert ">closing</span>" in ask(client, "/")[0]
            assert "the run is closing" in ask(client, f"/run?{base}")[0]
        (chip,) = [link for link in links(page, "rows") if "error.kind" in link]
        assert "prepare.decode" in chip
        assert '<b class="free">prepare.decode</b> 1 ' in text
        for said in ("<strong>Running</strong>", "step-0100, sweep 2", "12.3", "12:30 min", "3 of 4 rows are done"):
            assert said in text
        assert "the last time the run closed" in text
        assert "at most 12.5" in text
        text, _ = ask(client, f"/run?{base}")
        assert "<strong>Crashed</strong>" in text
        assert "Time left" not in text
        run.write("plan", {"verdict": 7})
        assert "a file of this run is damaged" in ask(client, f"/run?{base}", 404)[0]


def test_provenance_tells_the_spec_and_the_data_apart(tmp_path: Path) -> None:
    run = make_run(tmp_path, 1)
    run.write("source", {"fingerprint": "xxh3-abc", "rows": 1})
    with client_of(tmp_path) as client:
        text, _ = ask(client, f"/run?in={tmp_path.name}&path=night-drive")
    assert "xxh3-abc" in text
    assert re.search("SHA-256 of the spec</th><td[^>]*>[0-9a-f]{64}<", text)
