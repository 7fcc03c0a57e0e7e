from __future__ import annotations

import logging

import pytest

from proctor.engines import news
from proctor.engines.news import FELL_BACK, News, tell
from proctor.rows import Event
from proctor.supervise import wire
from proctor.supervise.announcer import Announcer, pass_on
from proctor.supervise.counters import Counters


def test_news_reach_the_listener(monkeypatch: pytest.MonkeyPatch):
    found: list[News] = []
    monkeypatch.setattr(news, "_listener", found.append)
    tell("compile.done", "all of it", seconds=1.5, graphs=3)
    assert found == [News("compile.done", "all of it", "", 1.5, {"graphs": 3})]


def test_without_a_listener_they_are_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setattr(news, "_listener", None)
    with caplog.at_level(logging.INFO, logger="proctor.engines.news"):
        tell("compile.done", "all of it")
    assert caplog.messages == ["compile.done: all of it"]


def test_news_survive_the_wire():
    sent = News("compile.effect", "x is in effect", "", None, {"in_effect": None, "why": "so", "count": 2})
    unpacker: wire.Unpacker[wire.FromChild] = wire.Unpacker(wire.FromChild)
    assert unpacker.feed(bytes(wire.pack(wire.News(sent)))) == [wire.News(sent)]


def test_news_become_events_and_fallbacks_are_counted():
    events: list[Event] = []
    counters = Counters()
    announce = Announcer("engine-0", events.append)
    pass_on(News("compile.done", "all of it", seconds=1.5, data={"graphs": 3}), announce, counters)
    assert counters.fallbacks == 0
    pass_on(News(FELL_BACK, "merger: limit", "runs eagerly"), announce, counters)
    assert counters.fallbacks == 1
    assert [(event.kind, event.message, event.engine) for event in events] == [
        ("compile.done", "all of it", "engine-0"),
        ("compile.fell_back", "merger: limit", "engine-0"),
    ]
    assert (events[0].duration, events[0].data, events[1].action) == (1.5, {"graphs": 3}, "runs eagerly")
