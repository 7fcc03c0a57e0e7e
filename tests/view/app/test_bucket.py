"""Runs in object storage, through a store in memory."""

from __future__ import annotations

from pathlib import Path

import obstore
import pytest
from obstore.store import MemoryStore
from starlette.testclient import TestClient

from proctor.storage import objects
from proctor.storage.connect import Connection
from proctor.view.app.browser import make_site
from proctor.view.app.guard import Door
from proctor.view.browse.places import open_places
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
        for path in ("../other/secret", "nothing"):
            assert ask(client, f"/run?in=all&path={path}", 404)
