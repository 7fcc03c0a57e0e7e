"""Pages that follow: what is looked at, who is told, and when it ends."""

from __future__ import annotations

import asyncio
import http.client
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from proctor.results import RunDir
from proctor.storage.folder import LocalFolder
from proctor.view.app import serve as serving
from proctor.view.app import watching as watched
from proctor.view.app.watching import Watching
from proctor.view.browse.marks import Sight, list_sight, run_sight
from proctor.view.browse.places import open_places
from tests.view.app.asking import ask, client_of
from tests.view.helpers import make_run


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return make_run(tmp_path / "runs", 2)


def _until(seen: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not seen():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def test_a_mark_changes_with_what_is_shown_and_a_run_is_over_when_nobody_holds_it(run: RunDir) -> None:
    places = open_places([run.root.parent])
    before, listed = run_sight(run.folder), list_sight(places)
    assert before == run_sight(run.folder)
    assert listed == list_sight(places)
    assert before.over
    assert not listed.over
    with run.locked(lambda _reason: None):
        held, listed_held = run_sight(run.folder), list_sight(places)
        assert not held.over
        assert len({before.mark, held.mark}) == 2
        assert listed_held.mark != listed.mark
        run.write("status", {"state": "running"})
        assert run_sight(run.folder).mark != held.mark
        assert list_sight(places).mark != listed_held.mark
        marks = {run_sight(run.folder).mark}
        (run.root / "results" / "part-more-0-1-x.parquet").write_bytes(b"")
        marks.add(run_sight(run.folder).mark)
        with (run.root / "events.jsonl").open("a") as events:
            events.write("{}\n")
        marks.add(run_sight(run.folder).mark)
        assert len(marks) == 3
    assert run_sight(run.folder).over
    listed = list_sight(places)
    make_run(run.root.parent / "another", 1)
    assert list_sight(places).mark != listed.mark


def test_who_looks_keeps_no_driver_from_starting(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def tried(_folder: LocalFolder) -> bool:
        raise AssertionError("the lock of the run was tried")

    with run.locked(lambda _reason: None):
        monkeypatch.setattr(LocalFolder, "claimed_by_other", tried)
        assert not run_sight(run.folder).over
        assert list_sight(open_places([run.root.parent])).mark
    assert run_sight(run.folder).over


def test_listeners_share_the_looks_and_are_told_of_changes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    sights = [Sight("a", pause=0), Sight("a", pause=0), Sight("b", pause=0), Sight("c", over=True)]
    looks = 0

    def look() -> Sight:
        nonlocal looks
        looks += 1
        return sights[min(looks, len(sights)) - 1]

    async def heard(watching: Watching, seen: str) -> list[str]:
        return [word.decode() async for word in watching.follow("run", look, seen)]

    async def listen() -> tuple[list[str], list[str]]:
        watching = Watching()
        both = await asyncio.gather(heard(watching, "a"), heard(watching, "older"))
        assert watching.listeners == 0
        return both[0], both[1]

    monkeypatch.setattr(watched, "_SHARE", 0)
    new, old = asyncio.run(listen())
    changed = "id: {}\ndata: changed\n\n"
    for words in (new, old):
        assert words[0] == "retry: 3000\n\n"
        assert words[-1] == changed.format("c")
        assert len(words) == len(set(words))
    assert changed.format("a") not in new
    assert looks <= 2 * len(sights)


def test_who_leaves_is_forgotten_and_what_is_gone_ends_the_stream() -> None:
    async def leave() -> None:
        watching = Watching()
        stream = watching.follow("run", lambda: Sight("a"), "")
        assert await anext(stream) == b"retry: 3000\n\n"
        assert await anext(stream) == b"id: a\ndata: changed\n\n"
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        assert watching.listeners == 1
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await stream.aclose()  # type: ignore[attr-defined]
        assert watching.listeners == 0

    async def gone() -> list[bytes]:
        def look() -> Sight:
            raise FileNotFoundError("taken away")

        return [word async for word in Watching().follow("run", look, "a")]

    async def stopped() -> None:
        watching = Watching()
        stream = watching.follow("run", lambda: Sight("a"), "a")
        await anext(stream)
        watching.leave()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    asyncio.run(leave())
    assert asyncio.run(gone())[-1] == b"id: gone\ndata: changed\n\n"
    asyncio.run(stopped())


def test_only_pages_of_what_goes_on_say_that_they_can_be_followed(run: RunDir) -> None:
    with client_of(run.root.parent) as client:
        base = f"in={run.root.parent.name}&path={run.root.name}"
        text, _ = ask(client, f"/run?{base}")
        assert "data-live" not in text
        assert "<script" not in text
        with run.locked(lambda _reason: None):
            for page in (f"/run?{base}", f"/rows?{base}", "/"):
                text, _ = ask(client, page)
                assert "Reload the page to see what has changed since." in text
                assert '<script src="/live.js?v=' in text
        text, _ = ask(client, f"/rows?{base}")
        assert "data-live" not in text
        (seen,) = set(re.findall(r"seen=(\w+)", _ended(client, base)))
        assert client.get(f"/live?of=run&{base}&seen={seen}").status_code == 204
        assert client.get(f"/live?of=run&{base}", headers={"Last-Event-ID": seen}).status_code == 204
        for bad in (f"of=nothing&{base}", "of=run&in=x", f"of=run&{base}/../x", "of=runs/../run", ""):
            ask(client, f"/live?{bad}", 404)
        assert "Idiomorph" in client.get("/idiomorph.min.js").text


def _ended(client: TestClient, base: str) -> str:
    """The stream of a run that is over ends after a word; its id is what a page would have seen."""
    text = client.get(f"/live?of=run&{base}").text
    return text.replace("id: ", "seen=")


def test_no_more_than_so_many_listen(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.view.app.rooms.live.MOST_LISTENERS", 0)
    with client_of(run.root.parent) as client:
        assert client.get("/live?of=runs").status_code == 503


def test_of_those_who_come_together_no_more_listen_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "MOST_LISTENERS", 2)

    async def listen() -> list[bytes]:
        watching = Watching()
        streams = [watching.follow(number, lambda: Sight("a"), "a") for number in range(3)]
        first = [await anext(stream) for stream in streams]
        assert watching.listeners == 2
        with pytest.raises(StopAsyncIteration):
            await anext(streams[2])
        for stream in streams[:2]:
            await stream.aclose()  # type: ignore[attr-defined]
        assert watching.listeners == 0
        return first

    assert asyncio.run(listen()) == [b"retry: 3000\n\n", b"retry: 3000\n\n", b"retry: 30000\n\n"]


@contextmanager
def _served(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, serving._Server, Watching]]:
    """The real server, in a thread of its own."""
    made: list[tuple[serving._Server, Watching]] = []
    real = serving._Server.__init__

    def remember(server: serving._Server, config: object, watching: Watching) -> None:
        real(server, config, watching)  # type: ignore[arg-type]
        made.append((server, watching))

    monkeypatch.setattr(serving._Server, "__init__", remember)
    said: list[str] = []
    thread = threading.Thread(target=lambda: serving.serve([root], said.append, port=0))
    thread.start()
    try:
        _until(lambda: bool(said) and bool(made) and made[0][0].started)
        yield said[0].removeprefix("http://").rstrip("/"), *made[0]
    finally:
        made[0][0].should_exit = True
        thread.join(60)
        assert not thread.is_alive()


def test_the_real_server_tells_of_changes_notices_who_is_gone_and_stops_with_listeners(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    base = f"/live?of=run&in={run.root.parent.name}&path={run.root.name}&seen=none"
    with _served(run.root.parent, monkeypatch) as (host, server, watching), run.locked(lambda _reason: None):
        first, second = (http.client.HTTPConnection(host, timeout=60) for _ in range(2))
        answers = []
        for connection in (first, second):
            connection.request("GET", base)
            answers.append(connection.getresponse())
        assert answers[0].headers["content-type"].startswith("text/event-stream")
        assert answers[0].headers["cache-control"] == "no-store"
        assert _word(answers[0]).startswith("id: ")
        run.write("status", {"state": "running"})
        assert _word(answers[0]).startswith("id: ")
        _until(lambda: watching.listeners == 2)
        answers[1].close()
        second.close()
        _until(lambda: watching.listeners == 1)
        server.should_exit = True  # as Ctrl-C does
        while answers[0].readline():
            pass  # the end of the stream, whole
        first.close()
    assert watching.listeners == 0
    assert "timeout" not in caplog.text


def _word(answer: http.client.HTTPResponse) -> str:
    """The next event's first line."""
    while True:
        line = answer.readline().decode()
        assert line
        if line.startswith("id: "):
            return line
