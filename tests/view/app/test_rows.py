"""What a page of rows and of a row tells beyond its records, and questions that nobody waits for any more."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from proctor.results import RunDir, write_attempts
from proctor.rows.records import record_schema
from proctor.sources.mds import MDSSource
from proctor.view.app.images import Images
from proctor.view.app.shown import shown
from proctor.view.app.waiting import patiently
from proctor.view.browse.evidence import Evidence, evidence_in
from proctor.view.browse.rows.patience import Patience
from tests.view.app.asking import ask, client_of, links
from tests.view.helpers import make_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """Row 0 has log-probabilities, row 1 has failed twice, once with a dump of its engine."""
    run = make_run(tmp_path_factory.mktemp("rows"), 4)
    for part in (run.root / "results").iterdir():
        part.unlink()
    schema = record_schema({"waypoints": (points := pa.list_(pa.list_(pa.float64()))), "waypoints_target": points})
    rows: list[dict[str, Any]] = [
        {
            "row_id": 0,
            "checkpoint": "c",
            "answer": "far",
            "token_ids": [5, 6, 7],
            "logprobs": [-0.001, -3.0, None],
            "waypoints": [[0.5, 1.0], [1.0, 2.0]],
            "waypoints_target": [[0.0, 1.0], [None, 2.0], [3.0, 3.0]],
        },
        {"row_id": 1, "checkpoint": "c", "error_kind": "infer.crashed", "error_message": "SIGSEGV", "engine": "vm:2"},
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema), run.root / "results" / "part-c.parquet")
    told = "no progress for 8 s; stacks in /elsewhere/stalls/vm:1-1.txt"
    tries = [
        {
            "row_id": 1,
            "checkpoint": "c",
            "sweep": 1,
            "error_kind": "infer.stalled",
            "error_message": told,
            "engine": "vm:1",
        }
    ]
    write_attempts(run.attempts, pa.Table.from_pylist(tries, record_schema({})))
    for name in ("vm:1-1.txt", "vm:1.log", "vm:2.log", "vm:1-2.txt"):
        (run.root / "stalls" / name).write_text(f"stacks of {name}")
    return run


def test_a_row_shows_its_waypoints_from_above_and_its_tokens_with_their_probabilities(run: RunDir) -> None:
    with client_of(run.root.parent) as client:
        text, page = ask(client, f"/row?in={run.root.parent.name}&path=night-drive&row=0&checkpoint=c")
    assert "waypoints seen from above" in text
    assert text.count('<circle class="answer"') == 3  # two points, and one in the legend
    assert text.count('<circle class="target"') == 2  # what comes after the point that is none is left out
    assert 'title="token 2, id 6: 4.98 %, log-probability -3"' in text
    assert "Mean log-probability -1.5" in text
    assert {"ol", "dialog"} <= page.tags


def test_an_error_leads_to_the_stacks_and_the_log_of_its_engine(run: RunDir) -> None:
    with client_of(run.root.parent) as client:
        text, page = ask(client, f"/row?in={run.root.parent.name}&path=night-drive&row=1&checkpoint=c")
        files = [link.partition("file=")[2] for link in links(page, "stalls")]
        assert files == ["vm%3A2.log", *sorted(["vm%3A1-1.txt", "vm%3A1.log"], key=files.index)]
        assert "no progress for 8 s" in text
        assert "waypoints seen" not in text
        stacks = next(link for link in links(page, "stalls") if "1-1" in link)
        assert "stacks of vm:1-1.txt" in ask(client, stacks)[0]


def test_a_dump_belongs_to_an_error_only_if_its_message_names_it() -> None:
    files = [Evidence(name, "") for name in ("vm:1-1.txt", "vm:1-11.txt", "vm:1.log", "x.txt")]
    assert [file.name for file in evidence_in("in /a/vm:1-11.txt", "vm:1", files)] == ["vm:1-11.txt", "vm:1.log"]
    assert evidence_in("a message of x.txt", "None", files) == []


def test_points_that_are_none_are_not_drawn() -> None:
    for points in ([], [None], [[1.0]], [[float("nan"), 1.0]], [[1e300, 0.0]], [["a", "b"]], ["ab"]):
        assert shown({"answer": "x"}, {"waypoints": points}).path is None
    assert shown({"output_tokens": 5000}, {"logprobs": [-1.0]}).tokens.left_out == 3000  # type: ignore[union-attr]


def test_an_image_of_a_limited_source_is_read_without_its_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path, 4)
    spec = yaml.safe_load((run.root / "spec.yaml").read_text())
    spec["source"]["limit"] = 2
    (run.root / "spec.yaml").write_text(yaml.safe_dump(spec))

    def whole(*_: Any) -> None:
        raise AssertionError("the whole shard is read")

    monkeypatch.setattr(MDSSource, "read", whole)
    assert Images().jpeg(run, 1, 0).startswith(b"\xff\xd8")


def test_an_answer_learns_that_nobody_waits_for_it_any_more() -> None:
    begun, rest = threading.Event(), threading.Event()

    def answer(_request: Request, patience: Patience) -> Response:
        assert patience.left > 0
        begun.set()
        while patience.left:
            rest.wait(0.01)
        return PlainTextResponse("nobody reads this")

    async def receive() -> dict[str, Any]:
        while not begun.is_set():  # noqa: ASYNC110 (it is set by another thread)
            await asyncio.sleep(0.01)
        return {"type": "http.disconnect"}

    request = Request({"type": "http", "method": "GET", "path": "/", "headers": []}, receive)
    answered = asyncio.run(asyncio.wait_for(patiently(answer, 3600)(request), 60))
    assert answered.body == b"nobody reads this"
