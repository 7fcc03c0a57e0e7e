"""An HTTP proxy on 127.0.0.1 that plants faults into the answers of the server behind it."""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Literal, NamedTuple, Self

_PASSED_ON = ("Range", "If-Match", "If-None-Match", "Accept", "Authorization")
_CHUNK = 1 << 16


@dataclass
class Fault:
    """What goes wrong, for which requests and how often.

    Attributes:
        key: hits requests whose path ends in it.
        kind: ``status``: answers with `status` alone; ``cut``: closes the connection after `at` bytes of a body;
            ``stall``: says nothing more after `at` bytes; ``drip``: a byte every `seconds` after `at` bytes;
            ``flip``: the byte at `at` of the object is another one.
        times: how many requests it hits; None: all.
        methods: which requests it hits.
    """

    key: str
    kind: Literal["status", "cut", "stall", "drip", "flip"]
    status: int = 503
    at: int = 0
    seconds: float = 0.0
    times: int | None = None
    methods: tuple[str, ...] = ("GET",)


class Asked(NamedTuple):
    """A request as it came in, and the fault that hit it."""

    method: str
    key: str
    range: str | None
    fault: str | None


class FaultProxy:
    """Passes GET and HEAD on to the server at `upstream` (``127.0.0.1:port``); `faults` may be changed at any time."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream.removeprefix("http://")
        self.faults: list[Fault] = []
        self.asked: list[Asked] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def endpoint(self) -> str:
        """Address of the proxy."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def count(self, key: str, method: str = "GET") -> int:
        """How many requests for a key came in."""
        return sum(asked.key.endswith(key) and asked.method == method for asked in self.asked)

    def claim(self, method: str, key: str, range_: str | None) -> Fault | None:
        """The fault that hits a request, if one does; notes the request."""
        with self._lock:
            for fault in self.faults:
                if fault.times != 0 and method in fault.methods and key.endswith(fault.key):
                    fault.times = None if fault.times is None else fault.times - 1
                    self.asked.append(Asked(method, key, range_, fault.kind))
                    return fault
            self.asked.append(Asked(method, key, range_, None))
            return None

    def wait(self, seconds: float) -> None:
        """Waits so long, or until the proxy ends."""
        self._ended.wait(seconds)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(_Handler):
            pass

        Handler.proxy = proxy
        return Handler


class _Handler(BaseHTTPRequestHandler):
    proxy: FaultProxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._answer("GET")

    def do_HEAD(self) -> None:
        self._answer("HEAD")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class calls it so)
        pass

    def _answer(self, method: str) -> None:
        key = self.path.partition("?")[0]
        fault = self.proxy.claim(method, key, self.headers.get("Range"))
        if fault is not None and fault.kind == "status":
            self._refuse(fault.status)
            return
        try:
            self._pass_on(method, fault)
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def _refuse(self, status: int) -> None:
        body = b"<Error><Code>Planted</Code><Message>a planted fault</Message></Error>"
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _pass_on(self, method: str, fault: Fault | None) -> None:
        connection = http.client.HTTPConnection(self.proxy.upstream, timeout=30)
        try:
            headers = {name: self.headers[name] for name in _PASSED_ON if name in self.headers}
            connection.request(method, self.path, headers=headers)
            reply = connection.getresponse()
            self.send_response(reply.status)
            for name, value in reply.getheaders():
                if name.lower() not in {"connection", "transfer-encoding", "date", "server"}:
                    self.send_header(name, value)
            self.end_headers()
            if method == "GET":
                self._body(_chunks(reply), _first_byte(reply), fault)
        finally:
            connection.close()

    def _body(self, chunks: Iterator[bytes], start: int, fault: Fault | None) -> None:
        sent = 0
        for chunk in chunks:
            if fault is not None and fault.kind == "flip":
                chunk = _flipped(chunk, fault.at - start - sent)
            elif fault is not None and sent + len(chunk) > fault.at:
                self.wfile.write(chunk[: fault.at - sent])
                self.wfile.flush()
                self._fail(fault, chunk[fault.at - sent :])
                return
            self.wfile.write(chunk)
            sent += len(chunk)

    def _fail(self, fault: Fault, rest: bytes) -> None:
        self.close_connection = True
        if fault.kind == "stall":
            self.proxy.wait(120)
        elif fault.kind == "drip":
            for byte in rest:
                self.proxy.wait(fault.seconds)
                self.wfile.write(bytes([byte]))
                self.wfile.flush()


def _chunks(reply: http.client.HTTPResponse) -> Iterator[bytes]:
    while chunk := reply.read(_CHUNK):
        yield chunk


def _first_byte(reply: http.client.HTTPResponse) -> int:
    """Position in the object of the first byte of a reply."""
    found = re.match(r"bytes (\d+)-", reply.getheader("Content-Range") or "")
    return int(found[1]) if found else 0


def _flipped(chunk: bytes, at: int) -> bytes:
    return chunk if not 0 <= at < len(chunk) else chunk[:at] + bytes([chunk[at] ^ 1]) + chunk[at + 1 :]


def wait_until(condition: object, seconds: float = 10.0) -> None:
    """Waits until `condition()` holds."""
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)
