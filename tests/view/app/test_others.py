"""The list: fleets, audits and benches, each in a line with what it says, whatever lies in its files."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from proctor.compile.published import published
from proctor.compile.store import BENCH, write_bench
from proctor.compile.verdict import verdict
from proctor.fleet import words
from proctor.fleet.notes import Notes
from proctor.storage.folder import LocalFolder
from proctor.view.browse import others
from proctor.view.browse.fleets.brief import fleet_brief
from proctor.view.browse.marks import list_sight
from proctor.view.browse.others import others_of
from proctor.view.browse.places import Found, open_places, survey
from tests.fleet.staged_cells import fleet_of, tell
from tests.view.app.asking import ask, client_of, links

EVIL = "<script>alert(1)</script>"
ENDED = (words.UNIT_ADMITTED, words.UNIT_STARTED, words.UNIT_ENDED)


def put_audit(place: Path, sentence: str, kind: str = "isolated") -> None:
    place.mkdir(parents=True)
    content = {"checkpoint": "step-1", "verdict": {"kind": kind, "sentence": sentence, "more": [1]}, "arms": [[]]}
    (place / "audit.json").write_bytes(msgspec.json.encode(content))


def test_each_has_its_line_and_leads_to_its_page(tmp_path: Path) -> None:
    place = fleet_of(tmp_path, ["a", "b", "c"])
    tell(place, "a", *ENDED, attempt=1, complete=True)
    put_audit(tmp_path / "audits <b>&" / "one", f"Cause found: batch {EVIL}")
    measured = published()
    write_bench(tmp_path / "bench" / BENCH, measured, verdict(measured))
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "audit.json").write_text("[" * 100_000)
    (tmp_path / "step.sqlite").write_text("")
    with client_of(tmp_path) as client:
        text, page = ask(client, "/")
        assert "1 of 3 units complete</b>; 3 cells of 3 checkpoints; nobody watches it" in text
        assert '<b class="warn">step-1: Cause found.</b> Batch' in text
        assert "&lt;script&gt;" in text
        assert "Nothing can be concluded" in text
        assert "not an audit that this version reads" in text
        assert text.index("/fleet?") < text.index("/audit?") < text.index("/bench?") < text.index("/trace?")
        ask(client, links(page, "fleet")[0])
        ask(client, links(page, "bench")[0])
        assert len(links(page, "audit")) == 2


def test_a_fleet_in_a_line_follows_its_events(tmp_path: Path) -> None:
    place = fleet_of(tmp_path, ["a", "b", "c"], way="parallel", at_once=2)
    assert fleet_brief(place.folder) == (
        "0 of 2 units complete",
        "3 cells of 3 checkpoints; nobody watches it",
        "open",
    )
    tell(place, "c", *ENDED, words.UNIT_GIVEN_UP, attempt=1, exit_code=3)
    tell(place, "a+1", words.UNIT_ADMITTED, attempt=1)
    Notes(place.folder).hold("c")
    assert fleet_brief(place.folder) == (
        "0 of 2 units complete",
        "3 cells of 3 checkpoints; 1 at work; 1 given up; 1 held; nobody watches it",
        "bad",
    )
    tell(place, "a+1", words.UNIT_ENDED, attempt=1, complete=True)
    tell(place, "c", *ENDED, attempt=2, complete=True)
    assert fleet_brief(place.folder)[2] == "good"


def test_what_it_says_is_read_again_when_its_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_audit(tmp_path / "one", "Cause found: first")
    (opened,) = open_places([tmp_path])
    before = list_sight([opened]).mark

    def said() -> str:
        (one,) = others_of(opened, survey(opened).found).rest
        return f"{one.word}: {one.text}"

    assert said() == "step-1: Cause found: First"
    (tmp_path / "one" / "audit.json").write_text(
        json.dumps({"checkpoint": "b", "verdict": {"kind": "x", "sentence": ""}})
    )
    assert said() == "b: x: "
    assert list_sight([opened]).mark != before
    monkeypatch.setattr(others, "MOST_READ", 0)
    assert said() == ": "


def test_links_and_what_is_gone_are_told(tmp_path: Path) -> None:
    put_audit(tmp_path / "outside", "Cause found: secret")
    (tmp_path / "all" / "linked").mkdir(parents=True)
    (tmp_path / "all" / "linked" / "audit.json").symlink_to(tmp_path / "outside" / "audit.json")
    (opened,) = open_places([LocalFolder(tmp_path / "all")])
    found = [Found("audit", "linked"), Found("bench", "gone"), Found("refused", "odd", "why it is odd")]
    lines = {one.path: one for one in others_of(opened, found).rest}
    assert "symbolic link" in lines["linked"].problem
    assert "no such directory" in lines["gone"].problem
    assert lines["odd"].problem == "why it is odd"
    assert not any(one.word or one.text for one in lines.values())
