"""A small OpenAI-compatible server on this machine that can be told to misbehave."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, dict[str, str], bytes]
"""Status, headers, body."""


def completion(text: str | None = "fine", **choice: Any) -> Reply:
    message = {"role": "assistant", "content": text}
    body = {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", **choice}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15},
    }
    return 200, {}, json.dumps(body).encode()


def failure(status: int, message: str = "no", **headers: str) -> Reply:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return status, names, json.dumps({"error": {"message": message}}).encode()


@dataclass
class ChatServer:
    """`answer` makes the reply to a chat completion from its body and the number of times its text was asked before.

    With `drip`, a reply leaves in pieces of so many bytes, twenty a second.
    """

    answer: Callable[[dict[str, Any], int], Reply] = lambda body, seen: completion()
    models: Reply = (200, {}, b'{"object": "list", "data": []}')
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    tries: Counter[str] = field(default_factory=Counter)
    most_open: int = 0
    drip: int = 0
    _open: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> ChatServer:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def _completion(self, body: dict[str, Any]) -> Reply:
        text = text_of(body)
        with self._lock:
            self.bodies.append(body)
            seen = self.tries[text]
            self.tries[text] += 1
            self._open += 1
            self.most_open = max(self.most_open, self._open)
        try:
            return self.answer(body, seen)
        finally:
            with self._lock:
                self._open -= 1

    def _handler(server) -> type[BaseHTTPRequestHandler]:  # noqa: N805 (`self` is the handler's)
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.keys.append(self.headers.get("Authorization"))
                self._reply(server.models if self.path == "/v1/models" else failure(404))

            def do_POST(self) -> None:
                server.keys.append(self.headers.get("Authorization"))
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._reply(server._completion(body) if self.path == "/v1/chat/completions" else failure(404))

            def _reply(self, reply: Reply) -> None:
                status, headers, body = reply
                try:
                    self.send_response(status)
                    for name, value in {**headers, "Content-Length": str(len(body))}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    for start in range(0, len(body), server.drip or len(body) or 1):
                        self.wfile.write(body[start : start + (server.drip or len(body))])
                        time.sleep(0.05 if server.drip else 0)
                except OSError:
                    pass  # the client gave up

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def text_of(body: dict[str, Any]) -> str:
    """The text of the last message."""
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
