from __future__ import annotations

import base64
import io
import threading
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import pytest
from PIL import Image

from proctor.engines import http_server
from proctor.engines.base import EngineConfig, IterFeed
from proctor.engines.http_server import Busy
from proctor.engines.openai import OpenAIEngine
from proctor.engines.openai_tokens import Token
from proctor.engines.sampling import row_seed
from proctor.rows import ErrorKind, Message, Request, Response, TextPart, UserError
from tests.engines.chat_server import ChatServer, completion, failure, text_of
from tests.engines.tiny import answers, ask, picture

KEY = "sk-secret-123"


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer() as server:
        yield server


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "FIRST_WAIT", 0.01)


def engine_for(url: str, batch_size: int = 4, **options: Any) -> OpenAIEngine:
    options = {"base_url": url, "timeout_seconds": 5.0, "max_retries": 3, **options}
    return OpenAIEngine(EngineConfig("openai", "some-model", batch_size=batch_size, options=options))


def loaded(server: ChatServer, **options: Any) -> OpenAIEngine:
    engine = engine_for(server.url, **options)
    engine.check()
    engine.load()
    return engine


def only(found: dict[int, Response]) -> Response:
    (response,) = found.values()
    return response


def kind(response: Response) -> ErrorKind | None:
    return response.failure and response.failure.kind


def test_an_answer_with_its_counts(server: ChatServer):
    reports: list[int] = []
    (response,) = loaded(server).stream(IterFeed(iter([ask(5)])), reports.append)
    assert response == Response(5, text="fine", finish_reason="stop", prompt_tokens=12)
    assert sum(reports) == 3


def test_the_body_is_a_chat_completion_with_images_as_data_uris(server: ChatServer):
    jpeg, png = picture(), picture(8, 8, format_="PNG")
    request = ask(1, [jpeg, png], max_tokens=9, stop=("\n",))
    system = Message("system", (TextPart("Be brief."),))
    request = Request(1, (system, *request.prompt), request.images, request.sampling)
    answers(loaded(server), [request])
    uris = [
        f"data:image/{kind};base64,{base64.b64encode(data).decode()}" for kind, data in [("jpeg", jpeg), ("png", png)]
    ]
    assert server.bodies == [
        {
            "model": "some-model",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {
                    "role": "user",
                    "content": [
                        {"type": "image_url", "image_url": {"url": uris[0]}},
                        {"type": "image_url", "image_url": {"url": uris[1]}},
                        {"type": "text", "text": "Describe the road and plan the path."},
                    ],
                },
            ],
            "max_tokens": 9,
            "temperature": 0.0,
            "stop": ["\n"],
        }
    ]


def test_a_sampled_row_sends_its_own_seed(server: ChatServer):
    request = ask(3, temperature=0.7, top_p=0.9, seed=11)
    answers(loaded(server), [request])
    (body,) = server.bodies
    assert (body["temperature"], body["top_p"], body["seed"]) == (0.7, 0.9, row_seed(request))


def test_an_image_that_servers_read_differently_is_sent_as_its_pixels(server: ChatServer):
    rotated, buffer = Image.new("RGB", (40, 20), "teal"), io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    rotated.save(buffer, "JPEG", exif=exif)
    answers(loaded(server), [ask(1, [buffer.getvalue()]), ask(2, [picture(40, 20, format_="BMP")])])
    sent = {body["messages"][0]["content"][0]["image_url"]["url"] for body in server.bodies}
    sizes = set()
    for uri in sent:
        head, _, data = uri.partition(",")
        assert head == "data:image/png;base64"
        sizes.add(Image.open(io.BytesIO(base64.b64decode(data))).size)
    assert sizes == {(20, 40), (40, 20)}


def test_logprobs_are_asked_for_and_read(server: ChatServer):
    tokens = [{"token": "fi", "logprob": -0.5}, {"token": "ne", "logprob": -0.25}]
    server.answer = lambda body, seen: completion(logprobs={"content": tokens if body.get("logprobs") else None})
    found = answers(loaded(server), [ask(1, logprobs=True), ask(2)])
    assert found[1].logprobs == (-0.5, -0.25)
    assert found[2].logprobs is None


def chosen(token: str, logprob: float, *top: tuple[str, float], **more: Any) -> dict[str, Any]:
    rivals = [{"token": name, "logprob": value} for name, value in top]
    return {"token": token, "logprob": logprob, "top_logprobs": rivals, **more}


def test_the_most_likely_tokens_are_asked_for_and_ranked(server: ChatServer):
    content = [
        chosen("token_id:7", -0.5, ("token_id:9", -1.0), ("token_id:7", -0.5), ("token_id:9", -1.0)),
        chosen("token_id:3", -2.0, ("token_id:5", -0.5), ("token_id:4", -0.5)),
    ]
    server.answer = lambda body, seen: completion(logprobs={"content": content}, token_ids=[7, 3])
    engine = loaded(server, token_ids=True)
    response = only(answers(engine, [ask(1, top_logprobs=2)]))
    assert response.token_ids == (7, 3)
    assert response.logprobs is None
    assert response.top_logprobs == (((7, -0.5), (9, -1.0)), ((4, -0.5), (5, -0.5)))
    (body,) = server.bodies
    assert (body["logprobs"], body["top_logprobs"]) == (True, 2)
    assert (body["return_token_ids"], body["return_tokens_as_token_ids"]) == (True, True)


def test_tokens_without_ids_get_some_of_their_bytes(server: ChatServer):
    content = [
        chosen("fine", -0.5, ("fine", -0.5), (" fine", -1.0)),
        chosen("\ufffd", -0.5, ("\ufffd", -0.5), bytes=[226]),
        chosen(" fine", -0.1, (" fine", -0.1)),
    ]
    server.answer = lambda body, seen: completion(logprobs={"content": content})
    response = only(answers(loaded(server), [ask(1, logprobs=True, top_logprobs=2)]))
    assert response.top_logprobs is not None
    fine, spaced = response.top_logprobs[0]
    assert response.token_ids == (fine[0], Token(0.0, "", [226]).id, spaced[0])
    assert len(set(response.token_ids)) == 3
    assert all(-(2**31) <= token < 0 for token in response.token_ids)
    assert response.logprobs == (-0.5, -0.5, -0.1)
    assert "return_token_ids" not in server.bodies[0]


def test_ids_of_bytes_are_the_same_everywhere():
    assert Token(0.0, "fine").id == Token(-1.0, "other text", list(b"fine")).id == -1760566823
    assert Token(0.0, "token_id:x").id < 0


def test_a_server_without_log_probabilities_leaves_them_out(server: ChatServer):
    response = only(answers(loaded(server), [ask(1, logprobs=True, top_logprobs=2)]))
    assert (response.token_ids, response.logprobs, response.top_logprobs) == ((), None, None)


def test_forced_tokens_are_refused_without_asking(server: ChatServer):
    response = only(answers(loaded(server), [ask(1, forced=(1, 2))]))
    assert kind(response) is ErrorKind.INFER_REJECTED
    assert server.bodies == []


def test_finish_reasons(server: ChatServer):
    server.answer = lambda body, seen: completion(finish_reason=text_of(body))
    reasons = ["stop", "length", "content_filter"]
    found = answers(loaded(server), [ask(number, text=text) for number, text in enumerate(reasons)])
    assert [found[number].finish_reason for number in range(3)] == ["stop", "length", None]
    assert kind(found[2]) is ErrorKind.INFER_REJECTED


def test_an_answer_without_text_is_blank_not_missing(server: ChatServer):
    server.answer = lambda body, seen: completion(None)
    response = only(answers(loaded(server), [ask(1)]))
    assert (response.text, response.failure) == ("", None)


@pytest.mark.parametrize(
    "trouble",
    [
        failure(429, Retry_After="0"),
        failure(429, Retry_After=formatdate(0, usegmt=True)),
        failure(429, Retry_After="soon"),
        failure(500),
        failure(503, Retry_After="0"),
        failure(408),
        (200, {}, b"<html>gateway</html>"),
        (200, {}, b'{"choices": []}'),
        (200, {}, b'{"error": {"message": "overloaded"}}'),
    ],
    ids=["429", "429-date", "429-odd", "500", "503", "408", "garbage", "no-choices", "error-as-200"],
)
def test_trouble_that_passes_is_tried_again(server: ChatServer, trouble: Any):
    server.answer = lambda body, seen: trouble if seen < 2 else completion()
    assert only(answers(loaded(server), [ask(1)])).text == "fine"
    assert len(server.bodies) == 3


def test_trouble_that_stays_leaves_the_row_to_the_next_sweep(server: ChatServer):
    server.answer = lambda body, seen: failure(503, "down for repairs", Retry_After="0")
    response = only(answers(loaded(server, max_retries=2), [ask(1)]))
    assert response.failure
    assert response.failure.kind is ErrorKind.INFER_UNREACHABLE
    assert response.failure.kind.retryable
    assert "3 tries" in response.failure.message
    assert "down for repairs" in response.failure.message
    assert len(server.bodies) == 3


def test_an_open_request_is_a_sign_of_life(server: ChatServer):
    let_go = threading.Event()
    server.answer = lambda body, seen: completion() if let_go.wait(20) else failure(500)
    reports: list[int] = []

    def report(tokens: int) -> None:
        reports.append(tokens)
        if len(reports) == 3:
            let_go.set()

    list(loaded(server).stream(IterFeed(iter([ask(1)])), report))
    assert reports[:3] == [0, 0, 0]
    assert sum(reports) == 3


def test_a_server_that_hangs_is_given_up(server: ChatServer):
    let_go = threading.Event()
    server.answer = lambda body, seen: completion() if let_go.wait(20) else failure(500)
    response = only(answers(loaded(server, max_retries=1, timeout_seconds=0.2), [ask(1)]))
    let_go.set()
    assert kind(response) is ErrorKind.INFER_UNREACHABLE
    assert response.failure
    assert "TimeoutError" in response.failure.message


def test_a_server_that_drips_is_given_up(server: ChatServer):
    engine = loaded(server, max_retries=0, timeout_seconds=0.5)
    server.drip = 1
    response = only(answers(engine, [ask(1)]))
    assert kind(response) is ErrorKind.INFER_UNREACHABLE
    assert response.failure
    assert "the reply was not whole within 0.5 s" in response.failure.message
    server.drip = 1000
    assert only(answers(engine, [ask(2)])).text == "fine"


def test_a_server_that_is_gone_is_unreachable(server: ChatServer):
    engine = loaded(server, max_retries=1)
    server.__exit__()
    response = only(answers(engine, [ask(1)]))
    assert kind(response) is ErrorKind.INFER_UNREACHABLE
    with pytest.raises(Busy):
        engine.load()


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_request_at_fault_is_rejected_at_once(server: ChatServer, status: int):
    server.answer = lambda body, seen: failure(status, "too long")
    response = only(answers(loaded(server), [ask(1)]))
    assert kind(response) is ErrorKind.INFER_REJECTED
    assert response.failure
    assert "too long" in response.failure.message
    assert len(server.bodies) == 1


@pytest.mark.parametrize("status", [401, 403, 404, 302])
def test_a_server_that_refuses_everybody_ends_the_engine(server: ChatServer, status: int):
    server.answer = lambda body, seen: failure(status, "who are you?", Location="http://127.0.0.1:9/")
    with pytest.raises(UserError, match=f"HTTP {status} .*who are you"):
        answers(loaded(server), [ask(1), ask(2)])


def test_bad_rows_do_not_fail_their_neighbours(server: ChatServer):
    server.answer = lambda body, seen: failure(400) if text_of(body) == "long" else completion()
    bad = [ask(1, text="long"), ask(2, [b"no image"]), ask(3, [picture()], slots=2), ask(4, [picture(4000, 4)])]
    found = answers(loaded(server), [*bad, *(ask(id_) for id_ in range(10, 16))])
    assert {id_: kind(response) for id_, response in found.items()} == {
        1: ErrorKind.INFER_REJECTED,
        2: ErrorKind.PREPARE_DECODE,
        3: ErrorKind.INFER_REJECTED,
        4: ErrorKind.INFER_REJECTED,
        **dict.fromkeys(range(10, 16)),
    }
    assert len(server.bodies) == 7


def test_as_many_requests_are_open_as_the_batch_size_allows(server: ChatServer):
    all_there = threading.Barrier(3)

    def together(body: dict[str, Any], seen: int) -> Any:
        all_there.wait(10)
        return completion()

    server.answer = together
    found = answers(loaded(server, batch_size=3), [ask(id_) for id_ in range(9)])
    assert {response.text for response in found.values()} == {"fine"}
    assert server.most_open == 3


def test_a_new_request_is_taken_while_others_are_open(server: ChatServer):
    slow = threading.Event()
    server.answer = lambda body, seen: completion() if text_of(body) != "slow" or slow.wait(20) else failure(500)
    feed = IterFeed(iter([ask(1, text="slow"), *(ask(id_) for id_ in range(2, 8))]))
    order = []
    for response in loaded(server, batch_size=2).stream(feed, lambda tokens: None):
        order.append(response.id)
        if len(order) == 6:
            slow.set()
    assert sorted(order[:6]) == [2, 3, 4, 5, 6, 7]
    assert order[6] == 1


def test_the_key_is_sent_and_never_told(server: ChatServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SERVER_KEY", KEY)
    server.answer = lambda body, seen: failure(403, f"{KEY} is not known")
    engine = loaded(server, api_key_env="SERVER_KEY")
    with pytest.raises(UserError) as caught:
        answers(engine, [ask(1)])
    assert server.keys == [f"Bearer {KEY}"] * 2
    assert KEY not in str(caught.value)
    assert KEY not in repr(engine._config)


def test_a_key_that_is_not_set_is_a_mistake(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SERVER_KEY", raising=False)
    with pytest.raises(UserError, match="the environment variable SERVER_KEY is not set"):
        engine_for("http://127.0.0.1:9/v1", api_key_env="SERVER_KEY").check()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base_url": "ftp://127.0.0.1"}, "is not a web address"),
        ({"timeout": 3}, "did you mean `timeout_seconds`"),
        ({"max_retries": "many"}, "Expected `int`"),
    ],
)
def test_mistakes_in_the_options_are_named(options: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        engine_for("http://127.0.0.1:9/v1", **options).check()


def test_check_asks_nothing_of_the_network():
    assert engine_for("http://127.0.0.1:9/v1").check() is None


@pytest.mark.parametrize("status", [200, 404, 405])
def test_loading_does_not_need_a_list_of_models(server: ChatServer, status: int):
    server.models = failure(status)
    assert only(answers(loaded(server), [ask(1)])).text == "fine"


def test_loading_shows_a_wrong_key(server: ChatServer):
    server.models = failure(401, "bad key")
    with pytest.raises(UserError, match="bad key"):
        loaded(server)


def test_an_engine_can_stream_again(server: ChatServer):
    engine = loaded(server)
    server.answer = lambda body, seen: failure(503, Retry_After="0") if seen == 0 else completion()
    assert only(answers(engine, [ask(1, text="a")])).text == "fine"
    assert only(answers(engine, [ask(2, text="b")])).text == "fine"
