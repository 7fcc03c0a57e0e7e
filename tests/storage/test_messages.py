"""What is said when a bucket cannot be used: which server, which bucket, and what to do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from proctor.results import RunDir
from proctor.rows import UserError
from proctor.storage.base import StorageError
from proctor.storage.connect import StorageOptions
from proctor.storage.folder import open_folder
from proctor.storage.replies import NO_CREDENTIALS, explained
from tests.storage.bucket import Bucket

NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def forbidding() -> Iterator[str]:
    """A server that refuses everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(403)

        def do_HEAD(self) -> None:
            self.send_error(403)

        def log_message(self, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_server_that_is_not_there_is_named() -> None:
    folder = open_folder("s3://bucket/run", StorageOptions(endpoint=NOBODY, anonymous=True, attempts=2))
    with pytest.raises(StorageError) as caught:
        folder.write("spec.yaml", b"")
    assert str(caught.value) == (
        f"cannot write s3://bucket/run/spec.yaml: no connection to {NOBODY} (Connection refused), after 2 tries; "
        "see storage.endpoint and AWS_ENDPOINT_URL"
    )


def test_a_server_with_a_wrong_name_is_named() -> None:
    options = StorageOptions(endpoint="http://no-such-host.invalid", anonymous=True, attempts=1)
    with pytest.raises(StorageError, match=r"no connection to http://no-such-host\.invalid"):
        open_folder("s3://bucket/run", options).names()


def test_a_refusal_hints_at_credentials(forbidding: str) -> None:
    options = StorageOptions(endpoint=forbidding, anonymous=True, attempts=1)
    with pytest.raises(StorageError, match=r"403 Forbidden.*; check the credentials and what they may do$"):
        open_folder("s3://bucket/run", options).read("spec.yaml")


def test_credentials_that_are_nowhere_are_asked_for() -> None:
    asked = "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1s - HTTP error"
    assert explained(Exception(asked)) == NO_CREDENTIALS


def test_a_bucket_that_is_not_there_is_no_missing_run(bucket: Bucket) -> None:
    with pytest.raises(UserError) as caught:
        RunDir.existing("s3://elsewhere/run", bucket.options)
    assert str(caught.value) == (
        "s3://elsewhere/run: cannot be read: cannot list s3://elsewhere/run: "
        "404 Not Found (NoSuchBucket: The specified bucket does not exist.)"
    )
    with pytest.raises(UserError, match=r"no run here \(no spec\.yaml\)"):
        RunDir.existing(bucket.url("run"), bucket.options)
