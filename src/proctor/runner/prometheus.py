"""Metrics in Prometheus's own way: as text, and on a port of this machine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from proctor.rows import UserError

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client import CollectorRegistry

Values = Mapping[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class Series:
    """One metric.

    Attributes:
        name: as it is exported; that of a counter ends with ``_total``.
        text: what it counts, and in which unit.
        labels: names of its labels.
        values: value by the values of its labels.
    """

    name: str
    text: str
    labels: Sequence[str]
    values: Values

    @property
    def counter(self) -> bool:
        """Whether it only ever grows, while its process lives."""
        return self.name.endswith("_total")


class Exporter:
    """Exports what `collect` gives at that moment.

    Args:
        collect: gives all series; called by any thread, and more than one.
        fixed: labels that every series gets, with their values.

    Raises:
        UserError: the library is not installed.
    """

    def __init__(self, collect: Callable[[], Iterable[Series]], fixed: Mapping[str, str]) -> None:
        check_library()
        from prometheus_client import CollectorRegistry

        self._collect, self._fixed = collect, fixed
        self._registry: CollectorRegistry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Collector(self._families))
        self._server: WSGIServer | None = None
        self._thread: threading.Thread | None = None

    def text(self) -> bytes:
        """Everything in Prometheus's text format
        (https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format)."""
        from prometheus_client import generate_latest

        return bytes(generate_latest(self._registry))

    def serve(self, port: int) -> int:
        """Serves it on ``http://127.0.0.1:PORT/metrics`` until `close`; 0 takes any free port. Returns the port.

        Raises:
            OSError: the port is taken.
        """
        from prometheus_client import start_http_server

        self._server, self._thread = start_http_server(port, addr="127.0.0.1", registry=self._registry)
        return int(self._server.server_port)

    def close(self) -> None:
        """Serves no more."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join(5)
            self._server = None

    def _families(self) -> Iterable[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for series in self._collect():
            names, values = [*self._fixed, *series.labels], [*self._fixed.values()]
            kind = CounterMetricFamily if series.counter else GaugeMetricFamily
            family = kind(series.name, series.text, labels=names)
            for labels, value in series.values.items():
                family.add_metric([*values, *labels], value)
            yield family


class _Collector:
    """What the library's registry takes."""

    def __init__(self, collect: Callable[[], Iterable[Any]]) -> None:
        self.collect = collect


def check_library() -> None:
    """Looks whether the library is there.

    Raises:
        UserError: it is not.
    """
    if find_spec("prometheus_client") is None:
        fix = "pip install 'proctor[metrics]', or leave metrics out"
        raise UserError("prometheus-client is not installed", where="metrics", fix=fix)


def served(exporter: Exporter, port: int | None) -> str:
    """Serves on `port`, if there is one; gives what is wrong with it, which is no reason to end anything."""
    if port is None:
        return ""
    try:
        exporter.serve(port)
    except OSError as error:
        return f"no metrics are served on 127.0.0.1:{port}: {error.strerror}"
    return ""
