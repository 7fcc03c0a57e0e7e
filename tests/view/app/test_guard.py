"""Who may ask, and who may not."""

from __future__ import annotations

import socket

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from proctor.view.app.guard import Door, Guard

TOKEN = "correct-horse"


def _client(token: str | None = None) -> TestClient:
    async def inner(scope, receive, send):  # type: ignore[no-untyped-def]
        await PlainTextResponse("inside")(scope, receive, send)

    return TestClient(Guard(inner, Door(7777, token)), base_url="http://127.0.0.1:7777", follow_redirects=False)


_STRANGE = (
    *("evil.example:7777", "127.0.0.1:7778", "127.0.0.1", "localhost.evil.example:7777", "user@localhost:7777"),
    *("", "[::1", "localhost:7777/x", "10.0.0.1:7777", "0.0.0.0:7777", "localhost:99999", "localhost:7777 "),
)


@pytest.mark.parametrize("host", _STRANGE)
def test_other_names_are_refused(host: str) -> None:
    assert _client().get("/", headers={"Host": host}).status_code == 421


def test_other_origins_methods_and_embeddings_are_refused() -> None:
    client = _client()
    for origin in ("http://evil.example", "null", "https://127.0.0.1:7777", "http://localhost:7777", ""):
        assert client.get("/", headers={"Origin": origin}).status_code == 403
    assert client.get("/", headers={"Origin": "http://127.0.0.1:7777"}).text == "inside"
    for site in ("cross-site", "same-site"):
        assert client.get("/", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}).status_code == 403
        assert client.get("/", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}).text == "inside"
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"):
        assert client.request(method, "/").status_code == 405
    assert client.head("/").status_code == 200


def test_elsewhere_a_token_is_needed() -> None:
    client = _client(TOKEN)
    own = {"Host": f"{socket.gethostname()}:7777"}
    for host in ("10.1.2.3:7777", "[fe80::1]:7777"):
        assert client.get("/", headers={"Host": host}).status_code == 401
    assert client.get("/", headers={"Host": "evil.example:7777"}).status_code == 421
    for shown in ("", "wrong", TOKEN[:-1], TOKEN + "x", "é", "%00"):
        assert client.get("/", params={"token": shown}).status_code == 401
        assert client.get("/", headers={"Authorization": f"Bearer {shown}".encode()}).status_code == 401
    assert client.get("/", headers={"Authorization": f"Bearer {TOKEN}"}).text == "inside"
    assert client.get("/", headers={**own, "Authorization": f"Bearer {TOKEN}"}).text == "inside"
    for cookie in ("proctor-view-7777=wrong", f"proctor-view-7778={TOKEN}", f"proctor-view={TOKEN}"):
        assert client.get("/", headers={"Cookie": cookie}).status_code == 401
    assert client.get("/", headers={"Cookie": f"proctor-view-7777={TOKEN}"}).text == "inside"


def test_the_token_leaves_the_address_at_once() -> None:
    client = _client(TOKEN)
    answer = client.get("/rows", params={"token": TOKEN, "filter": 'a = "ü&"', "path": ""})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/rows?filter=a+%3D+%22%C3%BC%26%22&path="
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    for path in ("//evil.example", "/%2fevil", "/%2f%2fevil.example", "/rows/%2fevil", "/rows//evil"):
        location = client.get(path, params={"token": TOKEN, "a": "b"}).headers["location"]
        assert location == "/?a=b"
    assert client.get("/", params={"token": TOKEN}).headers["location"] == "/"
