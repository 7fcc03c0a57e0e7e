"""Hostile runs, paths and files: nothing of them gets through the pages, and none breaks one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

from proctor.results import RunDir
from proctor.rows.records import record_schema
from tests.view.app.asking import ask, client_of, links
from tests.view.helpers import HOSTILE, make_run


def test_nothing_of_a_hostile_run_becomes_part_of_a_page(client: TestClient) -> None:
    _, runs = ask(client, "/")
    evil = next(link for link in links(runs, "run") if "evil" in link)
    text, _ = ask(client, evil)
    assert "does not balance" not in text
    assert HOSTILE not in text
    rows, page = ask(client, evil.replace("/run", "/rows"))
    assert "&lt;script&gt;" in rows
    row, shown = ask(client, links(page, "row")[0])
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&lt;img src=x" in row
    assert "\u202e" not in row
    assert all(link.startswith("/image?") for link in shown.images)
    for name in ("filter", "q", "sort", "columns", "in", "path", "after"):
        text = client.get(f"{evil.replace('/run', '/rows')}&{name}={quote(HOSTILE)}").text
        assert "<script>" not in text
    assert "<script>" not in client.get(f"/{quote(HOSTILE)}").text


def test_huge_and_strange_values_are_shown_cut(tmp_path: Path) -> None:
    run = make_run(tmp_path, 2)
    for part in (run.root / "results").iterdir():
        part.unlink()
    schema = record_schema({"way <i>": pa.list_(pa.float32()), "score": pa.float64()})
    row = {
        "row_id": 0,
        "checkpoint": "c",
        "answer": "<x>\0" + "a" * 10_000_000,
        "way <i>": [1.0],
        "score": float("nan"),
    }
    row |= {"prompt": '[{"role": "user", "parts": [{"type": "text", "text": "\\ud800"}]}]', "target": '"\\ud800"'}
    pq.write_table(pa.Table.from_pylist([row], schema), run.root / "results" / "part-c.parquet")
    (run.root / "results" / "part-d.parquet").write_bytes(b"nothing")
    with client_of(tmp_path) as client:
        base = f"in={tmp_path.name}&path=night-drive"
        text, _ = ask(client, f"/rows?{base}")
        assert "part-d.parquet" in text
        assert "1 of 1 records" in text
        text, _ = ask(client, f"/row?{base}&row=0&checkpoint=c")
        assert "cut; the export has all of it" in text
        assert len(text) < 400_000
        assert "<x>" not in text
        assert "way &lt;i&gt;" in text
        assert "There is no record" in ask(client, f"/row?{base}&row=7&checkpoint=c", 404)[0]


def test_no_address_leads_out_of_the_opened_directories(client: TestClient, root: Path, tmp_path: Path) -> None:
    outside = make_run(tmp_path, 2).root
    (root / "link").symlink_to(tmp_path)
    inside = root / "half"
    inside.mkdir()
    (inside / "spec.yaml").symlink_to(outside / "spec.yaml")
    for path in (
        "..",
        f"../{tmp_path.name}/night-drive",
        str(outside),
        "link/night-drive",
        "half",
        "good/../../x",
        "a\0b",
    ):
        for page in ("run", "rows", "row", "image", "export"):
            text, _ = ask(client, f"/{page}?in=runs&path={quote(path)}&row=0&form=csv", 404)
            assert "This cannot be shown" in text
    for address in (
        "/run?in=nothing&path=x",
        "/run",
        "/static/../../etc/passwd",
        "/docs",
        "/openapi.json",
    ):
        assert client.get(address).status_code == 404
    listed = client.get("/").text
    assert tmp_path.name not in listed
    assert "half" not in listed  # a spec that is a link makes no run


def test_damaged_and_half_written_runs_are_told_not_hidden(tmp_path: Path) -> None:
    for name in ("spec", "reconciliation", "metrics", "status"):
        run = make_run(tmp_path / name, 2).root
        target = next(run.glob(f"{name}.*"), run / f"{name}.json")
        target.write_text('{"checkpoints": [{"checkpoint": "a", "expected": "b"}], "state": 5, "x": {"metrics": 7}}')
    young = RunDir(tmp_path / "young")
    young.folder.write("spec.yaml", (tmp_path / "status/night-drive/spec.yaml").read_bytes())
    with client_of(tmp_path) as client:
        text, runs = ask(client, "/")
        assert text.count("damaged: ") == 3  # reconciliation, metrics and status
        for link in links(runs, "run"):
            answer = client.get(link)
            assert answer.status_code in (200, 404)
            assert "fault of Proctor" not in answer.text
        assert client.get(next(link for link in links(runs, "run") if "young" in link)).status_code == 200
        assert "0 of 0 records" in ask(client, f"/rows?in={tmp_path.name}&path=young")[0]


@pytest.mark.parametrize("moment", ["1e300", "-1e300", "1e15"])
def test_times_that_are_none_and_kinds_that_are_no_text_break_no_page(tmp_path: Path, moment: str) -> None:
    run = make_run(tmp_path, 4)
    account = run.read("reconciliation")
    account["checkpoints"][0]["errors"]["\ud800<i>"] = 1
    (run.root / "reconciliation.json").write_text(json.dumps(account))
    with client_of(tmp_path) as client:
        address = f"/run?in={tmp_path.name}&path=night-drive"
        text, page = ask(client, address)
        assert "?&lt;i&gt;</b>" in text
        chips = [link for link in links(page, "rows") if "error.kind" in link]
        assert len(chips) == 2  # of the ledger, and of all checkpoints
        for chip in chips:
            assert "0 of 16 records" in ask(client, chip)[0]
        with (run.root / "events.jsonl").open("a") as events:
            events.write(f'{{"kind": "engine.crashed", "time": {moment}, "duration": {moment}}}\n')
        assert client.get(address).status_code in (200, 404)


def test_every_answer_forbids_what_it_does_not_need(client: TestClient) -> None:
    for address in ("/", "/style.css", "/nothing", "/run?in=x"):
        headers = client.get(address).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["cross-origin-resource-policy"] == "same-origin"


def test_a_browser_keeps_only_what_is_of_the_program_itself(client: TestClient) -> None:
    (style,) = re.findall(r'"(/style\.css\?v=[0-9a-f]+)"', client.get("/").text)
    assert "immutable" in client.get(style).headers["cache-control"]
    assert client.get(f"{style}0").headers["cache-control"] == "no-store"
