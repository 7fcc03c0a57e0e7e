"""The page of a fleet: how its cells stand and what happened, whatever lies in its directory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from starlette.testclient import TestClient

from proctor.fleet import words
from proctor.fleet.notes import Notes
from proctor.rows import Event
from proctor.view.browse.fleets import opening
from tests.fleet.staged_cells import YES, fleet_of, make_cells, tell
from tests.view.app.asking import ask, client_of, links

EVIL = "<script>alert(1)</script>"
ENDED = (words.UNIT_ADMITTED, words.UNIT_STARTED, words.UNIT_ENDED)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three checkpoints with two choices: two cells done, one without all of its answers, one in the queue again."""
    root = tmp_path_factory.mktemp("fleets") / "all"
    root.mkdir()
    place = fleet_of(root, ["step-20", "step-3", "step-100"], matrix={"set": {"sampling.max_tokens": [16, 64]}})
    done = {"attempt": 1, "exit_code": 0, "complete": True}
    make_cells(place, "step-3--max_tokens=16", {"step-3": YES}, "complete")
    make_cells(place, "step-20--max_tokens=16", {"step-20": ["yes"] * 4}, "complete")
    make_cells(place, "step-20--max_tokens=64", {"step-20": ["yes", None, ("lost", ""), "no"]}, "incomplete")
    tell(place, "step-3--max_tokens=16", *ENDED, start=1e9, **done)
    tell(place, "step-20--max_tokens=16", *ENDED, start=1e9 + 600, **done)
    again = (words.UNIT_ADMITTED, words.UNIT_STARTED, words.UNIT_STOPPING, words.UNIT_GONE, words.UNIT_REQUEUED)
    tell(place, "step-100--max_tokens=64", *again, start=2e9, attempt=1, counts=True)
    place.append_event(Event(words.CHECKPOINT_REFUSED, message=f"Step-3 beside step-3 {EVIL}"))
    Notes(place.folder).hold("step-100--max_tokens=16")
    return root


@pytest.fixture(scope="module")
def client(root: Path) -> Iterator[TestClient]:
    with client_of(root) as client:
        yield client


def _words(text: str) -> str:
    return " ".join(text.split())


def test_the_matrix_has_every_cell_and_each_leads_to_its_run(client: TestClient) -> None:
    text, page = ask(client, "/fleet?in=all&path=fleet")
    assert "2 of 6 cells are done" in text
    assert "2 complete, 2 waiting, 1 held, 1 incomplete; nobody watches it." in text
    order = [text.index(f'<th scope="row" class="free">{name}</th>') for name in ("step-3", "step-20", "step-100")]
    assert order == sorted(order)
    assert "66.7 %</a></b>" in text
    assert "3 of 4 answered, 1 error</span>" in text
    assert "2 of 4 answered, 2 unanswered</span>" in text
    runs = links(page, "run")
    assert len(set(runs)) == 3
    for link in set(runs):
        ask(client, link)
    (errors,) = [link for link in links(page, "rows") if "is+not+null" in link]
    assert "1 of 4 records" in ask(client, errors)[0]


def test_the_curve_the_queue_and_the_tries_are_there(client: TestClient) -> None:
    text, page = ask(client, "/fleet?in=all&path=fleet")
    assert {"#matrix", "#curve", "#cells", "#queue", "#attempts", "#events"} <= set(page.links)
    assert text.count('aria-label="share over checkpoints"') == 1
    assert ">max_tokens=16</text>" in text
    queue = text[text.index('id="queue"') : text.index('id="attempts"')]
    assert queue.index("step-3--max_tokens=64") < queue.index("step-100--max_tokens=64")
    assert "why unit.requeued" in queue
    tries = _words(text[text.index('id="attempts"') : text.index('id="events"')])
    assert 'gone<span class="sub">queued again</span>' in tries
    assert "<td>2:00:00 h</td>" in tries
    assert "&lt;script&gt;" in text
    assert EVIL not in text


def test_cells_are_chosen_for_a_comparison_by_address(client: TestClient) -> None:
    text, _ = ask(client, "/fleet?in=all&path=fleet")
    assert '<form action="/compare" method="get">' in text
    assert text.count('name="side"') == 3
    cells = [f"all/fleet/cells/step-{step}--max_tokens=16:step-{step}" for step in (3, 20)]
    assert all(f'value="{cell}"' in text for cell in cells)
    ask(client, f"/compare?{urlencode({'side': cells}, doseq=True)}")


def test_a_fleet_that_is_opened_itself_and_one_of_a_single_kind(tmp_path: Path) -> None:
    place = fleet_of(tmp_path, ["a", "b"], way="parallel")
    make_cells(place, "a+1", {"a": YES, "b": YES}, "complete")
    with client_of(tmp_path / "fleet") as client:
        text, page = ask(client, "/fleet?in=fleet")
        assert "Every cell is done" in text
        assert "#matrix" not in page.links
        assert "in a+1</span>" in text
        assert 'value="fleet/cells/a+1:b"' in text
        (link,) = set(links(page, "run"))
        assert parse_qs(urlsplit(link).query) == {"in": ["fleet"], "path": ["cells/a+1"]}
        ask(client, link)


DAMAGED: tuple[tuple[str, bytes], ...] = (
    ("fleet.json", b""),
    ("fleet.json", b"[" * 100_000),
    ("fleet.json", b'{"format": 7}'),
    ("events.jsonl", b'\0\0\n{"kind": "unit.admitted", "time": 1e300, "data": {"unit": 3, "attempt": "x"}}\n{"kind'),
    (
        "events.jsonl",
        b'{"kind": "unit.started", "time": 1e300, "data": {"unit": "a", "attempt": 1e999}}\n'
        b'{"kind": "unit.ended", "time": 5, "data": {"unit": "a", "attempt": 1e999}}\n',
    ),
    ("cells/a/spec.yaml", b"\xff\xfe"),
    ("cells/a/metrics.json", b'{"a": {"metrics": [{}]}}'),
    ("cells/a/reconciliation.json", b'{"checkpoints": [{"expected": 1e300}]}'),
    ("cells/a/status.json", b'{"state": 3, "checkpoints": [], "seconds": "x", "time": 1e999}'),
)


@pytest.mark.parametrize(("name", "content"), DAMAGED)
def test_damage_is_told_and_breaks_no_page(tmp_path: Path, name: str, content: bytes) -> None:
    place = fleet_of(tmp_path, ["a", "b"])
    make_cells(place, "a", {"a": YES}, "complete")
    tell(place, "a", *ENDED, attempt=1)
    (tmp_path / "fleet" / name).write_bytes(content)
    with client_of(tmp_path) as client:
        answer = client.get(f"/fleet?in={tmp_path.name}&path=fleet")
        assert "fault of Proctor" not in answer.text
        assert answer.status_code == (404 if name == "fleet.json" else 200)
        if name.startswith("cells"):
            assert "<b>a</b>" in answer.text  # a note says what is wrong with it


def test_links_are_not_followed(tmp_path: Path, root: Path) -> None:
    place = fleet_of(tmp_path, ["a", "b"])
    cells = tmp_path / "fleet" / "cells"
    cells.mkdir()
    (cells / "a").symlink_to(root / "fleet" / "cells" / "step-3--max_tokens=16")
    (cells / "b").mkdir()
    make_cells(place, "b", {"b": YES}, "complete")
    (cells / "b" / "metrics.json").unlink()
    (cells / "b" / "metrics.json").symlink_to(root / "fleet/cells/step-3--max_tokens=16/metrics.json")
    with client_of(tmp_path) as client:
        text, _ = ask(client, f"/fleet?in={tmp_path.name}&path=fleet")
        assert text.count("a symbolic link, which is not followed") == 2
        assert "75.0 %" not in text
        (cells / "b" / "metrics.json").unlink()
        (cells / "b" / "results" / "part-more.parquet").symlink_to(next((cells / "b" / "results").iterdir()))
        assert "part-more.parquet: a symbolic link" in ask(client, f"/fleet?in={tmp_path.name}&path=fleet")[0]
        cells.rename(tmp_path / "cells")
        cells.symlink_to(tmp_path / "cells")
        assert "symbolic link" in ask(client, f"/fleet?in={tmp_path.name}&path=fleet", 404)[0]


def test_what_would_take_long_is_refused_before_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet_of(tmp_path, ["a", "b"])
    file = tmp_path / "fleet" / "fleet.json"
    content: dict[str, Any] = json.loads(file.read_text())
    content["spec"]["matrix"]["set"] = {f"engine.env.A{n}": list(range(1000)) for n in range(6)}
    file.write_text(json.dumps(content))
    address = f"/fleet?in={tmp_path.name}&path=fleet"
    with client_of(tmp_path) as client:
        assert "too many cells to be shown: 2,000,000,000,000,000,000" in ask(client, address, 404)[0]
        content["spec"]["matrix"]["set"] = {"engine.env.A": list(range(900))}
        content["spec"]["run"]["task"]["prompt"] = "x" * 100_000
        file.write_text(json.dumps(content))
        assert "too large to be shown" in ask(client, address, 404)[0]
        monkeypatch.setattr(opening, "MOST_BYTES", 100)
        assert "too large to be shown" in ask(client, address, 404)[0]


def test_events_that_are_too_many_leave_the_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = fleet_of(tmp_path, ["a"])
    make_cells(place, "a", {"a": YES}, "complete")
    tell(place, "a", *ENDED, attempt=1)
    monkeypatch.setattr(opening, "MOST_EVENTS_BYTES", 10)
    with client_of(tmp_path) as client:
        text, page = ask(client, f"/fleet?in={tmp_path.name}&path=fleet")
        assert "What happened to it is not known" in text
        assert "Every cell is done" in text
        assert "#attempts" not in page.links


def test_where_there_is_none_the_page_says_so(client: TestClient) -> None:
    for address in ("in=all", "in=all&path=fleet/cells", "in=all&path=../x", "in=none"):
        assert "This cannot be shown" in ask(client, f"/fleet?{address}", 404)[0]
