from __future__ import annotations

import threading
import time

import msgspec
import pytest

from proctor.fleet.notify import Notifier, Told
from proctor.fleet.webhook import Reply, Webhook
from proctor.rows import Event, UserError
from proctor.spec.notify import NotifySpec
from tests.trackers.helpers import eventually
from tests.trackers.hostile import Manner, dies_in_the_middle, drips, never_answers, says, server

NAME = "PROCTOR_TEST_WEBHOOK"
SECRET = "T0000-B0000-hunter2"
FAST = 0.001


def spec(**keys: object) -> NotifySpec:
    return NotifySpec.model_validate({"webhook_env": NAME, "events": ["unit.*"], **keys})


class Poster:
    """Answers as it is told, then takes everything; remembers the texts."""

    def __init__(self, *replies: Reply) -> None:
        self.replies, self.texts = list(replies), list[str]()
        self.may_go = threading.Event()
        self.may_go.set()

    def post(self, text: str, seconds: float | None = None) -> Reply:
        self.may_go.wait(60)
        self.texts.append(text)
        return self.replies.pop(0) if self.replies else Reply(ok=True)


def test_only_what_is_asked_for_is_told_and_markup_is_no_markup() -> None:
    poster = Poster()
    notifier = Notifier(spec(events=["unit.gave_up", "fleet.*"]), poster, "night <1>", FAST)
    notifier.tell(Event("unit.admitted", message="quiet"))
    data = {"unit": "step-100", "attempt": 3}
    notifier.tell(Event("unit.gave_up", message="a & <!channel>", action="no more tries", data=data))
    notifier.tell(Event("fleet.ended", message="79 of 80"))
    assert notifier.close(60) == Told(arrived=2)
    notifier.tell(Event("fleet.ended", message="after the end"))
    assert "\n".join(poster.texts).split("\n") == [
        "*night &lt;1&gt;* `unit.gave_up` step-100, attempt 3: a &amp; &lt;!channel&gt; (no more tries)",
        "*night &lt;1&gt;* `fleet.ended` 79 of 80",
    ]


def test_what_gathers_comes_together_and_the_oldest_give_way() -> None:
    poster = Poster()
    poster.may_go.clear()
    notifier = Notifier(spec(), poster, pace=FAST)
    notifier.tell(Event("unit.first"))
    eventually(lambda: notifier.state.waiting == 1)
    for number in range(600):
        notifier.tell(Event("unit.told", message=f"number {number}"))
    assert notifier.state.lost + notifier.state.waiting == 601
    assert notifier.state.lost >= 600 - 500 - 30
    poster.may_go.set()
    state = notifier.close(60)
    assert (state.arrived + state.lost, state.waiting) == (601, 0)
    assert poster.texts[-1].endswith("number 599")
    assert len(poster.texts) <= 2 + 500 // 30
    assert all(len(text.split("\n")) <= 30 for text in poster.texts)


def test_it_is_tried_again_where_that_may_help_and_only_so_often() -> None:
    busy, refused = Reply(ok=False, trouble="HTTP 429", wait=3600.0), Reply(ok=False, trouble="HTTP 404", again=False)
    poster = Poster(busy, busy, Reply(ok=True), refused, busy, busy, busy, Reply(ok=True))
    notifier = Notifier(spec(attempts=3), poster, pace=FAST / 60)
    states = []
    for kind in ("unit.one", "unit.two", "unit.three", "unit.four"):
        notifier.tell(Event(kind))
        eventually(lambda: notifier.state.waiting == 0)
        states.append(notifier.state)
    assert states == [
        Told(arrived=1),
        Told(arrived=1, lost=1, trouble="HTTP 404"),
        Told(arrived=1, lost=2, trouble="HTTP 429"),
        Told(arrived=2, lost=2),
    ]
    assert [text.split("`")[1] for text in poster.texts] == [
        *["unit.one"] * 3, "unit.two", *["unit.three"] * 3, "unit.four",
    ]  # fmt: skip


def test_whatever_the_sender_raises_the_next_message_is_sent() -> None:
    class Broken(Poster):
        def post(self, text: str, seconds: float | None = None) -> Reply:
            if not self.texts:
                self.texts.append(text)
                raise RuntimeError(f"https://hooks.example/{SECRET}")
            return super().post(text, seconds)

    notifier = Notifier(spec(attempts=1), Broken(), pace=FAST)
    notifier.tell(Event("unit.one"))
    eventually(lambda: notifier.state.lost == 1)
    assert notifier.state.trouble == "RuntimeError"
    notifier.tell(Event("unit.two"))
    assert notifier.close(60) == Told(arrived=1, lost=1)


def test_without_a_spec_nobody_is_told() -> None:
    notifier = Notifier.of(None)
    notifier.tell(Event("fleet.ended"))
    assert notifier.close() == Told()


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("", "is not set"),
        (f"ftp://hooks.example/{SECRET}", "no URL"),
        (f"hooks.example/{SECRET}", "no URL"),
        (f"https:///{SECRET}", "no URL"),
        (f"https://hooks.example:99999/{SECRET}", "no URL"),
        (f"https://[hooks.example/{SECRET}", "no URL"),
        (f"https://hooks.example/{SECRET}\r\nHost: other", "no URL"),
    ],
)
def test_a_variable_without_a_url_is_refused_without_saying_what_is_in_it(
    url: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NAME, url)
    with pytest.raises(UserError, match=what) as refused:
        Notifier.of(spec())
    assert SECRET not in str(refused.value)
    assert NAME in str(refused.value)


@pytest.mark.parametrize(
    ("manner", "trouble"),
    [
        (never_answers, "no reply"),
        (lambda connection, over: _drips_headers(connection, over), "no reply"),
        (says("500 Sorry about " + SECRET), "HTTP 500"),
        (says("302 Found", f"Location: http://127.0.0.1:1/{SECRET}\r\n"), "HTTP 302"),
        (lambda connection, _over: connection.sendall(b"\x00\xff not http\r\n\r\n"), "BadStatusLine"),
        (lambda connection, _over: connection.close(), ""),
    ],
    ids=["never answers", "drips", "500", "redirects", "no http", "closes"],
)
def test_hostile_servers_cost_no_more_than_their_time_and_learn_no_more(
    manner: Manner, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server(manner) as there:
        monkeypatch.setenv(NAME, f"{there.address}/{SECRET}")
        notifier = Notifier(spec(attempts=2), Webhook(NAME, 0.3), pace=FAST)
        began = time.monotonic()
        for _ in range(50):
            notifier.tell(Event("unit.gave_up", message="still none"))
        told = time.monotonic() - began
        state = notifier.close(20)
    assert told < 5, "telling waits for nobody"
    assert state.arrived == 0
    assert state.lost + state.waiting == 50
    assert trouble in state.trouble
    assert state.trouble
    assert SECRET not in state.trouble


@pytest.mark.parametrize("manner", [says("200 OK"), dies_in_the_middle, drips], ids=["ok", "dies", "drips its body"])
def test_a_status_of_200_is_enough(manner: Manner, monkeypatch: pytest.MonkeyPatch) -> None:
    with server(manner) as there:
        monkeypatch.setenv(NAME, f"{there.address}/{SECRET}")
        notifier = Notifier.of(spec(seconds=30), "night")
        notifier.tell(Event("unit.gave_up", message="after 3 tries"))
        assert notifier.close(60) == Told(arrived=1)
        eventually(lambda: len(there.asked) == 1)
    head, _, body = there.asked[0].partition(b"\r\n\r\n")
    assert head.startswith(f"POST /{SECRET} HTTP/1.1".encode())
    assert b"application/json" in head
    assert body == b"" or msgspec.json.decode(body) == {"text": "*night* `unit.gave_up` after 3 tries"}


def test_tries_that_hang_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def hangs(*_arguments: object) -> Reply:
        over.wait(60)
        return Reply(ok=True)

    monkeypatch.setenv(NAME, "http://127.0.0.1:1")
    monkeypatch.setattr(Webhook, "_send", hangs)
    webhook = Webhook(NAME, 0.02)
    replies = [webhook.post("text") for _ in range(6)]
    over.set()
    assert [reply.trouble for reply in replies] == [
        *["no reply within 0.02 s"] * 4,
        *["4 earlier tries still hang"] * 2,
    ]


def _drips_headers(connection: object, over: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")  # type: ignore[attr-defined]
    while not over.wait(0.05):
        connection.sendall(b"z")  # type: ignore[attr-defined]
