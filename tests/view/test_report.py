from __future__ import annotations

import base64
import re
import shutil
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from proctor.results import RunDir
from proctor.rows import UserError
from proctor.view.frames import data_uri
from proctor.view.report import write_report
from tests.view.helpers import CHECKPOINTS, HOSTILE, make_run
from tests.view.pages import Page


@pytest.fixture(scope="module")
def page(finished_run: RunDir) -> Page:
    return Page(write_report(finished_run))


@pytest.fixture
def own_run(finished_run: RunDir, tmp_path: Path) -> RunDir:
    """A copy of the finished run, to be damaged."""
    return RunDir(Path(shutil.copytree(finished_run.root, tmp_path / "copy")))


def test_is_one_well_formed_file_that_loads_and_runs_nothing(page: Page) -> None:
    assert page.problems == []
    assert not page.tags() & {"script", "link", "iframe", "object", "embed", "base", "form"}
    policy = page.attributes("meta", "content")[0]
    assert policy.startswith("default-src 'none';")
    assert "script-src" not in policy
    for name in ("src", "href", "srcset", "action", "xlink:href", "style"):
        for value in (v for tag in page.tags() for v in page.attributes(tag, name)):
            assert value.startswith(("data:image/jpeg;base64,", "#")), (name, value[:80])
    assert "url(" not in page.text
    assert "@import" not in page.text


def test_every_anchor_of_the_contents_leads_somewhere(page: Page) -> None:
    targets = set(page.attributes("section", "id"))
    assert {link.removeprefix("#") for link in page.attributes("a", "href")} == targets
    assert targets == {"ledger", "scores", "confusion", "samples", "errors", "timeline", "provenance"}


def test_says_how_the_run_ended_and_accounts_for_every_row(page: Page) -> None:
    words = page.words()
    assert "Complete All 400 expected records are there, each once; 9 (2.2 %) say why there is no answer." in words
    assert "exit code 0" in words
    assert "step-6400 100 97 3 infer.crashed 1 prepare.decode 2 0 0 0 0 0 ✓" in words


def test_shows_each_metric_with_interval_and_n(page: Page, finished_run: RunDir) -> None:
    words, metrics = page.words(), finished_run.read("metrics")
    for checkpoint in CHECKPOINTS:
        exact = metrics[checkpoint]["metrics"][0]
        assert exact["name"] == "exact"
        low, high = 100 * exact["low"], 100 * exact["high"]
        assert f"{100 * exact['value']:.1f} % {low:.1f} to {high:.1f} n {exact['n']}" in words


def test_draws_curves_confusions_paths_and_frames(page: Page) -> None:
    labels = page.attributes("svg", "aria-label")
    assert labels.count("waypoints seen from above") >= 4
    assert {"share over checkpoints", "m over checkpoints", "events over time"} <= set(labels)
    assert labels.count("confusion matrix of surface") == len(CHECKPOINTS)
    images = page.attributes("img", "src")
    assert len(images) >= 4
    for source in images:
        with Image.open(BytesIO(base64.b64decode(source.partition(",")[2]))) as image:
            assert image.size == (128, 96)


def test_lists_errors_with_examples_and_faults_in_time(page: Page) -> None:
    words = page.words()
    assert "prepare.decode final 2 2 2 2 row 13 image 1 of 1: truncated JPEG row 58 image 1 of 1: html JPEG" in words
    assert "infer.crashed final 0 0 0 1 row 90 the engine died of SIGSEGV with this row (step-6400)" in words
    assert "waypoints: there are none" in words
    assert "+1:30 engine.stalled kill 70 no token for 8.0 s (8.0 s)" in words
    assert "+0:26 quarantine.verdict infer.crashed 32, 33, 34 … (8)" in words
    assert "torch 2.13.0+cpu" in words
    assert "max_error_rate: 0.05" in words


def test_writing_it_twice_gives_the_same_page(finished_run: RunDir) -> None:
    first = Path(write_report(finished_run)).read_bytes()
    assert Path(write_report(finished_run)).read_bytes() == first


def test_hostile_answers_ids_and_messages_stay_text(tmp_path: Path) -> None:
    path = Path(write_report(make_run(tmp_path, 16, hostile=True)))
    page = Page(path)
    assert page.problems == []
    assert "script" not in page.tags()
    assert not any("onerror" in attributes for _, attributes in page.elements)
    assert all(source.startswith("data:image/jpeg;base64,") for source in page.attributes("img", "src"))
    assert HOSTILE in page.text
    assert "{{ 7 * 7 }}" in page.text
    raw = path.read_text(encoding="utf-8")
    assert "<script" not in raw
    assert "\u202e" not in raw


def test_an_incomplete_run_says_what_is_lacking(tmp_path: Path) -> None:
    words = Page(write_report(make_run(tmp_path, 16, lost=5))).words()
    assert "Incomplete 5 rows have no final record. Running the same command again resumes the run." in words
    assert "exit code 3" in words
    assert "lost retryable 0 0 0 5 row 11 no worker returned this row (step-6400)" in words
    assert "incomplete" in words


def test_a_run_that_was_never_closed_still_has_a_report(own_run: RunDir) -> None:
    for name in ("reconciliation.json", "metrics.json", "versions.json", "events.jsonl"):
        (own_run.root / name).unlink()
    shutil.rmtree(own_run.root / "results")
    page = Page(write_report(own_run))
    assert page.problems == []
    assert "Not closed yet" in page.text
    assert page.attributes("section", "id") == ["provenance"]


def test_no_run_no_report(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run here"):
        write_report(RunDir(tmp_path))


def test_a_source_that_is_gone_costs_the_images_only(tmp_path: Path) -> None:
    run = make_run(tmp_path, 16)
    shutil.rmtree(tmp_path / "scenes")
    page = Page(write_report(run))
    assert "The images could not be read back from the source" in page.words()
    assert "img" not in page.tags()
    assert "waypoints seen from above" in page.attributes("svg", "aria-label")


def test_damaged_events_do_not_cost_the_report(own_run: RunDir) -> None:
    with (own_run.root / "events.jsonl").open("ab") as file:
        file.write(b'{"kind": "engine.cra')
    assert "engine.crashed" in Page(write_report(own_run)).text


def test_images_leave_without_what_is_hidden_in_them() -> None:
    plain = Image.new("RGB", (2000, 1000), "red")
    exif = Image.Exif()
    exif[0x010E] = "secret place"
    stored = BytesIO()
    plain.save(stored, "JPEG", exif=exif, comment=b"secret comment")
    assert b"secret" in stored.getvalue()
    uri = data_uri(stored.getvalue())
    assert uri is not None
    shown = base64.b64decode(uri.partition(",")[2])
    assert b"secret" not in shown
    with Image.open(BytesIO(shown)) as image:
        assert image.size == (480, 240)


@pytest.mark.parametrize("data", [b"", b"<svg onload=alert(1)>", b"\xff\xd8\xff\xe0 not really"])
def test_what_is_no_image_is_not_embedded(data: bytes) -> None:
    assert data_uri(data) is None


def test_the_page_has_colours_for_light_and_dark(page: Page) -> None:
    used = set(re.findall(r"var\((--\w+)\)", page.text))
    for scheme in page.text.split("prefers-color-scheme: dark")[:2]:
        defined = set(re.findall(r"(--\w+):", scheme))
        assert used - {"--sans", "--mono"} <= defined
