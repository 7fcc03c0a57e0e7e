"""What a run talks to besides storage: a server of models, experiment trackers, a port of its own."""

from __future__ import annotations

import os
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from importlib.util import find_spec

from proctor.doctor.findings import Finding
from proctor.engines.http_server import NoRedirects
from proctor.rows import UserError
from proctor.spec import OpenAIEngineSpec, RunSpec
from proctor.storage.folder import open_folder
from proctor.trackers import check_trackers


def look_at_server(engine: OpenAIEngineSpec, seconds: float) -> Iterator[Finding]:
    """Whether the server answers at all, and lets us in."""
    name = engine.api_key_env
    key = os.environ.get(name, "") if name is not None else ""
    if name is not None and not key:
        yield Finding(
            "engine", "openai", "missing", f"{name} is not set, and engine.api_key_env names it", f"export {name}=..."
        )
    request = urllib.request.Request(f"{engine.base_url.rstrip('/')}/models")  # noqa: S310 (the spec takes http(s) only)
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.build_opener(NoRedirects).open(request, timeout=seconds):
            yield Finding("engine", "openai", "ok", f"{engine.base_url} answers")
    except urllib.error.HTTPError as error:
        with error:
            let_in = error.code not in (401, 403)
        what = f"{engine.base_url} answers with HTTP {error.code}"
        if let_in:
            yield Finding("engine", "openai", "ok", what)
        else:
            yield Finding("engine", "openai", "missing", what, "check the key in engine.api_key_env")
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        what = f"{engine.base_url} does not answer: {reason}"
        yield Finding("engine", "openai", "missing", what, "start the server, or correct engine.base_url")


def look_at_trackers(spec: RunSpec) -> Iterator[Finding]:
    """Whether each tracker could be opened."""
    for tracker in spec.trackers:
        name = tracker.name or tracker.kind
        try:
            check_trackers([tracker], open_folder(spec.run_dir))
        except UserError as error:
            yield Finding("tracker", name, "missing", error.what, error.fix or "")
        else:
            yield Finding("tracker", name, "ok", "can be told; whether it answers is seen in the run")


def look_at_metrics(port: int | None) -> Iterator[Finding]:
    """Whether metrics can be made, and served on 127.0.0.1."""
    if find_spec("prometheus_client") is None:
        what = "prometheus-client is not installed"
        yield Finding("metrics", "library", "missing", what, "pip install 'proctor[metrics]'")
    else:
        yield Finding("metrics", "library", "ok", "prometheus-client is installed")
    if port is not None:
        yield _port(port)


def _port(port: int) -> Finding:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            what = f"127.0.0.1:{port} cannot be taken: {error.strerror}"
            fix = f"set another metrics.port, or see who has it: ss -ltnp 'sport = :{port}'"
            return Finding("metrics", "port", "warning", what, fix)
    return Finding("metrics", "port", "ok", f"127.0.0.1:{port} is free")
