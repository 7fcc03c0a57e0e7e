from __future__ import annotations

import socket
from pathlib import Path

import pytest

from proctor.fleet import words
from proctor.fleet.exported import STATES, FleetMetrics, state_of
from proctor.fleet.loop import Ears
from proctor.fleet.telling import telling
from proctor.fleet.view import AttemptView, FleetView, Room, Rows, UnitView
from proctor.rows import Event, UserError
from proctor.runner.prometheus import Exporter
from proctor.spec.fleet import FleetSpec
from tests.trackers.helpers import eventually
from tests.trackers.hostile import says, server

UNITS = (
    UnitView("a", 2.0, attempt=AttemptView(1, "s-a-1", started=True), silent=30.0, waiting=False),
    UnitView("b", 2.0, attempt=AttemptView(1, "s-b-1"), failures=1, waiting=False),
    UnitView("c", 2.0, attempt=AttemptView(1, "s-c-1", stopping=4.0), waiting=False),
    UnitView("d", 2.0, live=True),
    UnitView("e", 2.0, complete=0, over=True, waiting=False),
    UnitView("f", 2.0, over=True, waiting=False),
    UnitView("g", 2.0, held=True),
    UnitView("h", 2.0),
)


def fleet(place: Path, **keys: object) -> FleetSpec:
    return FleetSpec.model_validate({"fleet_dir": str(place / "night"), "run": {}, **keys})


def test_every_unit_has_one_state() -> None:
    states = [state_of(unit) for unit in UNITS]
    assert states == ["running", "submitted", "stopping", "running", "complete", "given_up", "held", "waiting"]
    assert set(states) == set(STATES)


def test_a_fleet_in_figures() -> None:
    heard = FleetMetrics()
    exporter = Exporter(heard.collect, {"fleet": "night"})
    assert 'proctor_fleet_cluster_up{fleet="night"} 1.0' in exporter.text().decode()
    heard.event(Event(words.CLUSTER_LOST))
    heard.view(FleetView((UnitView("e", 2.0, rows=Rows(9, 9, 2)), *UNITS), Room(24.0, 6.0)))
    heard.view(FleetView((UnitView("b", 2.0, rows=Rows(9, 4, 1)), *UNITS), Room(24.0, 6.0)))
    heard.view(FleetView(UNITS, Room(24.0, 6.0)))
    text = exporter.text().decode()
    for line in (
        'proctor_fleet_units{fleet="night",state="running"} 2.0',
        'proctor_fleet_units{fleet="night",state="given_up"} 1.0',
        'proctor_fleet_gpus_in_use{fleet="night"} 8.0',
        'proctor_fleet_gpus{fleet="night"} 24.0',
        'proctor_fleet_gpus_others{fleet="night"} 6.0',
        'proctor_fleet_unit_silent_seconds{fleet="night",unit="a"} 30.0',
        'proctor_fleet_unit_rows_expected{fleet="night",unit="b"} 9.0',
        'proctor_fleet_unit_rows_done{fleet="night",unit="b"} 4.0',
        'proctor_fleet_unit_rows_errors{fleet="night",unit="b"} 1.0',
        'proctor_fleet_unit_rows_errors{fleet="night",unit="e"} 2.0',
        'proctor_fleet_unit_failures{fleet="night",unit="b"} 1.0',
        'proctor_fleet_events_total{fleet="night",kind="cluster.lost"} 1.0',
        'proctor_fleet_cluster_up{fleet="night"} 0.0',
    ):
        assert line in text
    heard.event(Event(words.CLUSTER_BACK))
    assert 'proctor_fleet_cluster_up{fleet="night"} 1.0' in exporter.text().decode()


def test_a_watcher_tells_the_webhook_prometheus_and_the_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events, views, troubles = list[Event](), list[FleetView](), list[str]()
    ears = Ears(events.append, views.append, troubles.append)
    with server(says("200 OK")) as there, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setenv("HOOK", f"{there.address}/hunter2hunter2")
        port = taken.getsockname()[1]
        spec = fleet(tmp_path, notify={"webhook_env": "HOOK"}, metrics={"port": port})
        with telling(spec, ears) as heard:
            heard.event(Event(words.UNIT_ADMITTED, data={"unit": "a"}))
            heard.event(Event(words.UNIT_GIVEN_UP, message="three attempts", data={"unit": "a"}))
            heard.view(FleetView(UNITS, Room(24.0)))
        eventually(lambda: len(there.asked) == 1)
    assert [event.kind for event in events] == [words.UNIT_ADMITTED, words.UNIT_GIVEN_UP]
    assert len(views) == 1
    assert len(troubles) == 1, "the port is taken, and that is all"
    assert str(port) in troubles[0]


def test_what_did_not_arrive_is_told_without_the_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    troubles = list[str]()
    with server(says("404 Not Found")) as there:
        monkeypatch.setenv("HOOK", f"{there.address}/hunter2hunter2")
        with telling(fleet(tmp_path, notify={"webhook_env": "HOOK"}), Ears(trouble=troubles.append)) as heard:
            heard.event(Event(words.FLEET_ENDED, message="80 of 80"))
    assert troubles == ["1 notifications did not arrive: HTTP 404"]
    monkeypatch.delenv("HOOK")
    with (
        pytest.raises(UserError, match="HOOK is not set"),
        telling(fleet(tmp_path, notify={"webhook_env": "HOOK"}), Ears()),
    ):
        pytest.fail("it was opened")
    with telling(fleet(tmp_path), Ears()) as heard:
        heard.event(Event(words.FLEET_ENDED))
