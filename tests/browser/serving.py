"""Servers of the browser for tests: one in a thread, and one as a person starts it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from proctor.view.app.browser import make_site
from proctor.view.app.guard import Door
from proctor.view.browse.places import open_places

_PATIENCE = 60  # seconds, on a machine that does much else


@contextmanager
def served(*places: Path) -> Iterator[str]:
    """The origin of a server in a thread of this process."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        site = make_site(open_places(places), Door(port))
        server = uvicorn.Server(uvicorn.Config(site, log_level="warning", ws="none", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="served")
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join(_PATIENCE)
            assert not thread.is_alive()


@contextmanager
def started(*places: Path) -> Iterator[str]:
    """The origin of a ``proctor view``, which has to end by itself when it is interrupted."""
    command = [sys.executable, "-m", "proctor", "view", *map(str, places), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip().rstrip("/")
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=_PATIENCE)
        assert (process.returncode, rest) == (0, "")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
