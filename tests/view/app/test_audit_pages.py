"""Audits and benches as live pages: the same as the frozen ones, within bounds, whatever lies in their files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from proctor.audit import Audit, Lab, write_audit
from proctor.compile.model import ANSWERS
from proctor.compile.published import published
from proctor.compile.store import BENCH, write_bench
from proctor.compile.verdict import verdict
from proctor.rows import UserError
from proctor.storage.folder import LocalFolder
from proctor.view.audit import longest_answer as frozen_longest
from proctor.view.audit import render_audit
from proctor.view.browse import audits, benches
from proctor.view.compile import render_compile
from tests.audit.planted import audited
from tests.compile.invented import FASTER, invented
from tests.view.app.asking import ask, client_of
from tests.view.pages import Page

EVIL = "<script>alert(1)</script>"
EFFECT = {"batch": 5, "nats": 0.6, "knobs": {"SPLIT": 1}}
SPLIT = {"name": "SPLIT", "default": 1, "values": [0], "env": True}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Audit, Lab]:
    folder = tmp_path_factory.mktemp("audit")
    return audited(folder, EFFECT, rows=8, batch_size=8, knobs=[SPLIT], near_ties=0.2)


@pytest.fixture(scope="module")
def place(made: tuple[Audit, Lab], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An audit by itself, one in a run, and a bench."""
    place = tmp_path_factory.mktemp("opened") / "all"
    write_audit(place / "odd [a]*", *made)
    write_audit(place / "run" / "audit", *made)
    (place / "run" / "spec.yaml").write_text("x: 1")
    measured = published()
    write_bench(place / "bench" / BENCH, measured, verdict(measured))
    return place


@pytest.fixture(scope="module")
def client(place: Path) -> Iterator[TestClient]:
    with client_of(place) as client:
        yield client


def _words(text: str, folder: Path) -> str:
    """What a page says, without its head and foot."""
    (folder / "page.html").write_text(text, encoding="utf-8")
    page = Page(folder / "page.html")
    assert page.problems == []
    return page.words()


def _inner(frozen: str, folder: Path, eyebrow: str) -> str:
    words = _words(frozen, folder)
    return words[words.rindex(eyebrow) : words.index("Written by Proctor")].strip()


def test_an_audit_is_the_page_that_is_frozen(
    client: TestClient, made: tuple[Audit, Lab], place: Path, tmp_path: Path
) -> None:
    longest = frozen_longest(place / "run" / "audit")
    assert longest == audits.longest_answer(LocalFolder(place / "odd [a]*")) > 0
    frozen = _inner(render_audit(made[0], longest=longest), tmp_path, "Proctor audit")
    assert "Cause found" in frozen
    for path in ("odd [a]*", "run", "run/audit"):
        text, page = ask(client, f"/audit?in=all&path={path}")
        assert frozen in _words(text, tmp_path)
        assert page.links.count("#matrix") == 1


def test_a_bench_is_the_page_that_is_frozen(client: TestClient, tmp_path: Path) -> None:
    measured = published()
    frozen = _inner(render_compile(measured, verdict(measured)), tmp_path, "Proctor compile")
    text, page = ask(client, "/bench?in=all&path=bench")
    assert frozen in _words(text, tmp_path)
    assert "More than the share allows" in frozen
    assert "#targets" in page.links


def test_nothing_of_a_hostile_audit_becomes_part_of_its_page(made: tuple[Audit, Lab], tmp_path: Path) -> None:
    content = msgspec.to_builtins(made[0])
    for shown in content["arms"]:
        shown["arm"]["name"] = EVIL
    content |= {"checkpoint": EVIL, "questions": dict.fromkeys(content["questions"], EVIL), "made_at": "\u202e" + EVIL}
    content["verdict"]["sentence"] = EVIL
    (tmp_path / "audit.json").write_text(json.dumps(content))
    with client_of(tmp_path) as client:
        text, _ = ask(client, f"/audit?in={tmp_path.name}")
        assert "&lt;script&gt;" in text
        assert "\u202e" not in text


def test_nothing_of_a_hostile_bench_becomes_part_of_its_page(tmp_path: Path) -> None:
    measured = invented({**FASTER, ANSWERS: (0.5, 0.49)}, rounds=3, processes=3, notes=(EVIL,))
    found = verdict(measured)
    write_bench(tmp_path / BENCH, msgspec.structs.replace(measured, subject={"model": EVIL, EVIL: [EVIL]}), found)
    with client_of(tmp_path) as client:
        text, _ = ask(client, f"/bench?in={tmp_path.name}")
        assert "&lt;script&gt;" in text


DAMAGED = (
    "",
    "[]",
    "{}",
    "nothing",
    '{"verdict": 3}',
    "[" * 100_000,
    '{"format": "proctor compile bench", "version": 9}',
)


@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_ones_are_told_in_a_line(tmp_path: Path, content: str) -> None:
    for name in ("audit.json", BENCH):
        (tmp_path / name).write_text(content)
    with client_of(tmp_path) as client:
        assert "not an audit that this version reads" in ask(client, f"/audit?in={tmp_path.name}", 404)[0]
        assert " bench" in ask(client, f"/bench?in={tmp_path.name}", 404)[0]


def _altered(content: dict[str, Any], name: str, value: Any) -> str:
    found = json.loads(json.dumps(content))
    for shown in found["arms"]:
        for side in ("comparison", "repeats"):
            if shown[side] is not None:
                shown[side][name] = value
    return json.dumps(found)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("survival", {"positions": [1, 2], "surviving": [0.5]}),
        ("text_equal", {"hits": 3, "of": -1, "low": 1e308, "high": -1e308}),
        ("shift", [1e308]),
        ("rows", -(2**63)),
    ],
)
def test_what_no_audit_writes_breaks_no_page(made: tuple[Audit, Lab], tmp_path: Path, name: str, value: Any) -> None:
    (tmp_path / "audit.json").write_text(_altered(msgspec.to_builtins(made[0]), name, value))
    with client_of(tmp_path) as client:
        answer = client.get(f"/audit?in={tmp_path.name}")
        assert answer.status_code in (200, 404)
        assert "fault of Proctor" not in answer.text


def test_links_and_what_is_too_large_are_not_read(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("audit.json", "answers.parquet"):
        (tmp_path / name).symlink_to(place / "run" / "audit" / name)
    (tmp_path / BENCH).symlink_to(place / "bench" / BENCH)
    assert audits.longest_answer(LocalFolder(tmp_path)) == 0
    with client_of(tmp_path) as client:
        for page in ("audit", "bench"):
            assert "symbolic link" in ask(client, f"/{page}?in={tmp_path.name}", 404)[0]
    monkeypatch.setattr(audits, "MOST_BYTES", 10)
    monkeypatch.setattr(benches, "MOST_BYTES", 10)
    with client_of(place) as client:
        assert "too large" in ask(client, "/audit?in=all&path=run", 404)[0]
        assert "too large" in ask(client, "/bench?in=all&path=bench", 404)[0]
    monkeypatch.undo()
    monkeypatch.setattr(audits, "MOST_ARMS", 1)
    monkeypatch.setattr(benches, "MOST_TIMINGS", 1)
    with client_of(place) as client:
        assert "too many arms" in ask(client, "/audit?in=all&path=run", 404)[0]
    with pytest.raises(UserError, match="too many timings"):
        benches.measured_of((place / "bench" / BENCH).read_bytes(), "there")


def test_where_there_is_none_the_page_says_so(client: TestClient) -> None:
    for page in ("audit?in=all&path=bench", "bench?in=all&path=run", "audit?in=all&path=../x", "bench?in=nothing"):
        assert "This cannot be shown" in ask(client, f"/{page}", 404)[0]
