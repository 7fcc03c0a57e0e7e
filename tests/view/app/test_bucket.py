"""Runs, and what lies beside them, in object storage, through a store in memory."""

from __future__ import annotations

from pathlib import Path

import obstore
import pytest
from obstore.store import MemoryStore
from starlette.testclient import TestClient

from proctor.audit import write_audit
from proctor.compile.published import published
from proctor.compile.store import BENCH, write_bench
from proctor.compile.verdict import verdict
from proctor.fleet import words
from proctor.storage import objects
from proctor.storage.connect import Connection
from proctor.view.app.browser import make_site
from proctor.view.app.guard import Door
from proctor.view.browse.places import open_places
from tests.audit.planted import audited
from tests.fleet.staged_cells import YES, fleet_of, make_cells, tell
from tests.view.app.asking import ask, links
from tests.view.helpers import make_run


def test_runs_in_a_bucket_are_found_and_their_rows_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, store = make_run(tmp_path, 12), MemoryStore()
    for path in run.root.rglob("*"):
        if path.is_file():
            obstore.put(store, f"all/nightly/{path.relative_to(run.root)}", path.read_bytes())
    obstore.put(store, "all/nightly/stalls/host:1.log", b"Loading weights")
    obstore.put(store, "all/fleet/fleet.json", b"{}")
    obstore.put(store, "other/secret/spec.yaml", b"{}")
    monkeypatch.setattr(objects, "_connected", lambda url, options: Connection(store, url.partition("bucket/")[2]))
    site = make_site(open_places(["s3://bucket/all"]), Door(80))
    with TestClient(site, base_url="http://127.0.0.1") as client:
        text, runs = ask(client, "/")
        assert [link.partition("path=")[2] for link in links(runs, "fleet")] == ["fleet"]
        assert "secret" not in text
        (link,) = links(runs, "run")
        text, _ = ask(client, link)
        assert "Complete" in text
        assert "data-live" not in text
        text, _ = ask(client, link.replace("/run", "/stalls"))
        assert "what the engine printed" in text
        text, _ = ask(client, link.replace("/run", "/stalls") + "&file=host:1.log")
        assert "Loading weights" in text
        followed = client.get(link.replace("/run?", "/live?of=run&")).text
        assert followed.count("data: changed") == 1
        text, rows = ask(client, link.replace("/run", "/rows") + "&filter=exact")
        assert "of 48 records" in text
        text, _ = ask(client, links(rows, "row")[0])
        assert "Parsed and scored" in text
        for away in ("../other/secret", "nothing"):
            assert ask(client, f"/run?in=all&path={away}", 404)


def test_fleets_audits_and_benches_in_a_bucket_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, measured = MemoryStore(), published()
    monkeypatch.setattr(objects, "_connected", lambda url, options: Connection(store, url.partition("bucket/")[2]))
    place = fleet_of(tmp_path, ["step-1", "step-2", "step-3"], fleet_dir="s3://bucket/all/fleet")
    for unit in ("step-1", "step-2"):
        make_cells(place, unit, {unit: YES}, "complete")
        tell(place, unit, words.UNIT_ADMITTED, words.UNIT_STARTED, words.UNIT_ENDED, attempt=1, complete=True)
    write_bench(tmp_path / BENCH, measured, verdict(measured))
    write_audit(tmp_path / "audit", *audited(tmp_path, rows=3))
    obstore.put(store, f"all/bench/{BENCH}", (tmp_path / BENCH).read_bytes())
    for file in (tmp_path / "audit").iterdir():
        obstore.put(store, f"all/audit/{file.name}", file.read_bytes())
    site = make_site(open_places(["s3://bucket/all"]), Door(80))
    with TestClient(site, base_url="http://127.0.0.1") as client:
        text, page = ask(client, "/")
        assert "2 of 3 units complete" in text
        assert "No effect found" in text
        assert "Nothing can be concluded" in text
        text, fleet = ask(client, links(page, "fleet")[0])
        assert "2 complete, 1 waiting; nobody watches it." in text
        assert len(set(links(fleet, "run"))) == 2
        assert "#attempts" in fleet.links
        assert "No effect found" in ask(client, links(page, "audit")[0])[0]
        assert "More than the share allows" in ask(client, links(page, "bench")[0])[0]
