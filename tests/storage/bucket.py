"""A real S3 server on 127.0.0.1 for tests: localbucket, with what it lacks (If-Match) and faults."""

from __future__ import annotations

import hashlib
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from localbucket import S3Error, S3Handler, etag_matches, object_etag

from proctor.storage.connect import StorageOptions

NAME = "bucket"


class Bucket:
    """One bucket, and how its server misbehaves.

    Attributes:
        refuse: share of requests (0 to 1) that are answered with 503, by method.
        refuse_keys: only requests whose path ends so are refused.
        lose_answers: how many of the next PUTs are carried out and then not answered.
        conditions: whether If-Match and If-None-Match are heeded.
        requests: method and key of every request, in order.
    """

    def __init__(self, root: Path) -> None:
        self.root = root / NAME
        self.root.mkdir(parents=True)
        self.refuse: dict[str, float] = {}
        self.refuse_keys = ""
        self.lose_answers = 0
        self.conditions = True
        self.requests: list[tuple[str, str]] = []
        self.endpoint = ""
        self.lock = threading.Lock()
        self._random = random.Random(0)

    @property
    def options(self) -> StorageOptions:
        return StorageOptions(endpoint=self.endpoint, anonymous=True)

    @property
    def block(self) -> dict[str, Any]:
        """The spec's ``storage``."""
        return {"endpoint": self.endpoint, "anonymous": True}

    def url(self, path: str) -> str:
        return f"s3://{NAME}/{path}"

    def keys(self, prefix: str = "") -> list[str]:
        found = (Path(base, name) for base, _, names in os.walk(self.root) for name in names)
        keys = sorted(str(path.relative_to(self.root)) for path in found if not path.name.startswith(".localbucket"))
        return [key for key in keys if key.startswith(prefix)]

    def contents(self) -> dict[str, bytes]:
        return {key: (self.root / key).read_bytes() for key in self.keys()}

    def refuses(self, method: str, path: str) -> bool:
        with self.lock:
            return path.endswith(self.refuse_keys) and self._random.random() < self.refuse.get(method, 0.0)


class _Handler(S3Handler):
    bucket: Bucket

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base's name)
        pass

    def _dispatch(self, action: Any) -> None:
        bucket = self.bucket
        bucket.requests.append((self.command, self.path))
        if bucket.refuses(self.command, self.path):
            self._read_body()
            self._send_error(S3Error(HTTPStatus.SERVICE_UNAVAILABLE, "SlowDown", "Please reduce your request rate."))
            return
        super()._dispatch(action)

    def _send_headers(self, status: HTTPStatus, length: int, headers: Any = None) -> None:
        with self.bucket.lock:
            lost = self.command == "PUT" and status == HTTPStatus.OK and self.bucket.lose_answers > 0
            self.bucket.lose_answers -= lost
        if lost:
            self.close_connection = True
            raise ConnectionAbortedError("answer lost on purpose")
        super()._send_headers(status, length, headers)

    def _send_file(
        self, status: HTTPStatus, file: Any, start: int, length: int, headers: Any, include_body: Any
    ) -> None:
        """The base reads the tag by path after it opened the file: a write in between gives old bytes a new tag."""
        if not _is_still(file, Path(file.name)):
            headers["ETag"] = f'"{hashlib.file_digest(file, "md5").hexdigest()}"'
        super()._send_file(status, file, start, length, headers, include_body)

    def _write_object(self, bucket: str, key: str, write: Any) -> str:
        if not self.bucket.conditions:
            del self.headers["If-None-Match"]
            del self.headers["If-Match"]
        with self.bucket.lock:
            wanted, target = self.headers.get("If-Match"), self._object_path(bucket, key)
            if wanted and not (target.is_file() and etag_matches(wanted, object_etag(target))):
                raise self._precondition_failed_error()
            return super()._write_object(bucket, key, write)


def _is_still(file: Any, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news here."""


@contextmanager
def served(root: Path) -> Iterator[Bucket]:
    """A bucket whose objects lie as files below `root`, served while the block runs."""
    bucket = Bucket(root)
    handler = type("Handler", (_Handler,), {"bucket": bucket, "data_root": root})
    with _Server(("127.0.0.1", 0), handler) as server:
        bucket.endpoint = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield bucket
        finally:
            server.shutdown()
            thread.join()
