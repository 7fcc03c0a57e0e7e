"""Reading files below a URL, from a real S3 server behind a proxy that plants faults."""

from __future__ import annotations

import http.server
import pickle
import random
import socketserver
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from proctor.rows import UserError
from proctor.storage import remote
from proctor.storage.connect import StorageOptions
from proctor.storage.remote import Remote, RemoteError, Stat
from tests.faults.proxy import Fault, FaultProxy

hadro = pytest.importorskip("hadro")

SIZE = 300_000
DATA = random.Random(5).randbytes(SIZE)
PIECE = 100_000
ODD = "odd #1?%20+ é"
LIMITS = {"attempts": 4, "read_seconds": 0.5, "retry_seconds": 20.0}


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of an S3 server with one bucket."""
    root = tmp_path_factory.mktemp("s3")
    (root / "bucket" / "data" / "in").mkdir(parents=True)
    (root / "bucket" / "data" / "file").write_bytes(DATA)
    (root / "bucket" / "data" / "in" / "empty").write_bytes(b"")
    (root / "bucket" / "data" / "in" / ODD).write_bytes(DATA[:4])
    with hadro.Server(data=str(root)) as server:
        yield server.endpoint.removeprefix("http://")


@pytest.fixture
def proxy(upstream: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    monkeypatch.setattr(remote, "PIECE_BYTES", PIECE)
    with FaultProxy(upstream) as proxy:
        yield proxy


@pytest.fixture(params=["s3", "http"])
def files(request: pytest.FixtureRequest, proxy: FaultProxy) -> Remote:
    """The same files by S3's protocol, and as a web server's."""
    if request.param == "s3":
        return Remote("s3://bucket/data", StorageOptions(endpoint=proxy.endpoint, anonymous=True, **LIMITS))
    return Remote(f"{proxy.endpoint}/bucket/data", StorageOptions(**LIMITS))


def failure(files: Remote, name: str = "file", size: int = SIZE) -> RemoteError:
    with pytest.raises(RemoteError) as caught:
        files.read(name, 0, size)
    assert caught.value.message.startswith(f"{files.url}/{name}: ")
    assert "\n" not in caught.value.message
    return caught.value


def test_a_file_comes_in_pieces(files: Remote, proxy: FaultProxy) -> None:
    seen = files.stat("file")
    assert seen.size == SIZE
    assert [len(piece) for piece in files.pieces("file", 0, SIZE, seen.tag)] == [PIECE] * 3
    assert files.read("file", 0, SIZE) == DATA
    assert files.read("file", 99_990, 250_001) == DATA[99_990:250_001]
    assert [asked.range for asked in proxy.asked[-2:]] == ["bytes=99990-199989", "bytes=199990-250000"]


@pytest.mark.parametrize("name", ["./file", f"in/./{ODD}", ".//file"])
def test_names_are_taken_as_they_are(files: Remote, name: str) -> None:
    assert files.read(name, 0, 4) == DATA[:4]


def test_an_empty_file(files: Remote) -> None:
    assert files.stat("in/empty").size == 0
    assert files.read("in/empty", 0, 0) == b""


def test_it_travels_pickled_and_compares_by_value(files: Remote) -> None:
    copy = pickle.loads(pickle.dumps(files))
    assert copy == files
    assert hash(copy) == hash(files)
    assert copy.read("file", 5, 9) == DATA[5:9]


def test_files_are_listed_where_there_is_a_way_to(files: Remote) -> None:
    assert sorted(files.names()) == (["file", "in/empty", f"in/{ODD}"] if files.url.startswith("s3") else [])


def test_the_environment_may_name_the_server(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"AWS_ENDPOINT_URL": proxy.endpoint, "AWS_SKIP_SIGNATURE": "true"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    remote._connect.cache_clear()  # of a bucket that was opened under another environment
    assert Remote("s3://bucket/data").read("file", 0, 9) == DATA[:9]
    remote._connect.cache_clear()


def test_what_is_not_there_is_missing(files: Remote, proxy: FaultProxy) -> None:
    assert failure(files, "other").reason == "missing"
    with pytest.raises(RemoteError, match=r"/other: not there \(HTTP 404\)"):
        files.stat("other")
    assert (proxy.count("other"), proxy.count("other", "HEAD")) == (1, 1)


@pytest.mark.parametrize("status", [401, 403])
def test_denied_is_told_at_once(files: Remote, proxy: FaultProxy, status: int) -> None:
    proxy.faults = [Fault("file", "status", status=status)]
    error = failure(files)
    assert error.reason == "denied"
    assert f"access denied (HTTP {status} Planted); check the credentials" in error.message
    assert proxy.count("file") == 1


def test_a_mistake_of_ours_is_not_repeated(files: Remote, proxy: FaultProxy) -> None:
    proxy.faults = [Fault("file", "status", status=400)]
    assert "the server refused it (HTTP 400 Planted)" in failure(files).message
    assert proxy.count("file") == 1


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_storm_that_passes_is_waited_out(files: Remote, proxy: FaultProxy, status: int) -> None:
    proxy.faults = [Fault("file", "status", status=status, times=3, methods=("GET", "HEAD"))]
    assert files.stat("file").size == SIZE
    proxy.faults = [Fault("file", "status", status=status, times=3)]
    assert files.read("file", 0, SIZE) == DATA
    assert proxy.count("file", "HEAD") == 4
    assert proxy.count("file") == 3 + 3


def test_a_storm_that_stays_is_given_up(files: Remote, proxy: FaultProxy) -> None:
    proxy.faults = [Fault("file", "status", status=503, methods=("GET", "HEAD"))]
    error = failure(files)
    assert (error.reason, proxy.count("file")) == ("failed", 4)
    assert error.message.endswith("HTTP 503 Planted (4 tries); try again later")
    with pytest.raises(RemoteError, match=r"HTTP 503 \(4 tries\)"):
        files.stat("file")


@pytest.mark.parametrize(
    ("kind", "what"),
    [("cut", "the connection was cut"), ("stall", "the server went silent"), ("drip", "of 100,000 bytes after 1 s")],
)
def test_a_body_goes_on_where_it_stopped(files: Remote, proxy: FaultProxy, kind: str, what: str) -> None:
    proxy.faults = [Fault("file", kind, at=40_000, seconds=0.2, times=2)]
    assert files.read("file", 0, SIZE) == DATA
    starts = [int(asked.range.split("=")[1].split("-")[0]) for asked in proxy.asked]
    assert len(starts) == 5
    # Each try asks for what has not come yet; a dripping server has given a few more bytes by then.
    assert starts[0] == 0
    assert starts[3:] == [100_000, 200_000]
    assert all(begin <= start < begin + 100 for start, begin in zip(starts[1:3], (40_000, 80_000), strict=True))
    proxy.faults = [Fault("file", kind, at=10, seconds=0.2)]
    error = failure(files)
    assert error.reason == "failed"
    assert what in error.message
    assert error.message.endswith("(4 tries); try again later")


@pytest.mark.parametrize("fault", [Fault("file", "drip", at=10, seconds=0.05), Fault("file", "status", status=503)])
def test_what_nobody_waits_for_any_more_ends_soon(files: Remote, proxy: FaultProxy, fault: Fault) -> None:
    patient = Remote(files.url, replace(files.options, attempts=1000, retry_seconds=600.0, read_seconds=60.0))
    proxy.faults = [fault]
    given_up = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(patient.read_into, "file", 0, memoryview(bytearray(SIZE)), None, given_up)
        time.sleep(0.5)
        assert not reading.done()
        given_up.set()
        with pytest.raises(RemoteError, match="/file: "):
            reading.result(5)


def test_a_range_beyond_the_end_is_noticed(files: Remote) -> None:
    assert failure(files, size=SIZE + 5).reason == "failed"


def test_a_file_that_is_replaced_meanwhile_is_not_mixed(files: Remote) -> None:
    with pytest.raises(RemoteError, match="was replaced while it was read"):
        files.read("file", 0, 10, '"another"')


class WithoutTags(http.server.BaseHTTPRequestHandler):
    """A web server that knows ranges and when its file was changed, but neither tags nor conditions."""

    data, changed = DATA[:100], "Mon, 30 Nov 2026 09:00:00 GMT"

    def do_HEAD(self) -> None:
        self._head(200, len(self.data))

    def do_GET(self) -> None:
        start, last = map(int, (self.headers["Range"] or "").removeprefix("bytes=").split("-"))
        self._head(206, last + 1 - start, f"bytes {start}-{last}/{len(self.data)}")
        self.wfile.write(self.data[start : last + 1])

    def _head(self, status: int, length: int, content_range: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.send_header("Last-Modified", type(self).changed)
        if content_range is not None:
            self.send_header("Content-Range", content_range)
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        pass


def test_a_server_without_tags_tells_by_the_time_of_change(monkeypatch: pytest.MonkeyPatch) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), WithoutTags) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        files = Remote(f"http://127.0.0.1:{server.server_address[1]}", StorageOptions(**LIMITS))
        seen = files.stat("file")
        assert files.read("file", 3, 50, seen.tag) == DATA[3:50]
        monkeypatch.setattr(WithoutTags, "changed", "Mon, 30 Nov 2026 09:00:01 GMT")
        with pytest.raises(RemoteError, match="was replaced while it was read"):
            files.read("file", 3, 50, seen.tag)
        assert files.stat("file") != seen
        server.shutdown()


def test_no_server(proxy: FaultProxy) -> None:
    files = Remote("http://127.0.0.1:9/data", StorageOptions(**{**LIMITS, "attempts": 2}))
    assert failure(files).message.endswith("no connection to the server (2 tries); try again later")


def test_a_server_without_ranges_is_named(tmp_path: Path) -> None:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(tmp_path))  # type: ignore[arg-type]

        def log_message(self, *_arguments: object) -> None:
            pass

    (tmp_path / "file").write_bytes(b"0123456789")
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        files = Remote(f"http://127.0.0.1:{server.server_address[1]}", StorageOptions(**LIMITS))
        seen = files.stat("file")
        assert seen == Stat(10, seen.tag)
        assert "the server does not serve ranges" in failure(files, size=5).message
        server.shutdown()


@pytest.mark.parametrize("url", ["https://host/data?X-Amz-Signature=abcdef", "http://host/data?sig=abcdef#part"])
def test_a_url_with_a_query_is_refused_without_telling_it(url: str) -> None:
    with pytest.raises(UserError, match="a URL with a query cannot have files below it") as caught:
        Remote(url).check()
    assert "abcdef" not in str(caught.value)


def test_errors_travel_pickled() -> None:
    error = pickle.loads(pickle.dumps(RemoteError("denied", "s3://b/x: no")))
    assert (error.reason, error.message, str(error)) == ("denied", "s3://b/x: no", "s3://b/x: no")
