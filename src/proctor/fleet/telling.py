"""Who is told how a fleet goes, besides the person who watches: a webhook, and Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from proctor.fleet.exported import FleetMetrics
from proctor.fleet.loop import Ears
from proctor.fleet.notify import Notifier
from proctor.fleet.view import FleetView
from proctor.rows import Event
from proctor.runner.prometheus import Exporter, served
from proctor.spec.fleet import FleetSpec

_CLOSE_SECONDS = 10.0


@contextmanager
def telling(spec: FleetSpec, ears: Ears) -> Iterator[Ears]:
    """Opens what the fleet's spec asks for during the block; gives ears that hear for it, and for `ears`.

    Neither can hold the watcher up. What goes wrong with them is told as trouble, and at most ten seconds are taken at
    the end for messages that have not arrived.

    Raises:
        UserError: the webhook's variable holds no URL, or the library for metrics is not installed.
    """
    name = spec.fleet_dir.rstrip("/").rpartition("/")[2]
    notifier, metrics = Notifier.of(spec.notify, name), FleetMetrics()
    exporter = None if spec.metrics is None else Exporter(metrics.collect, {"fleet": name})
    if exporter is not None and spec.metrics is not None and (trouble := served(exporter, spec.metrics.port)):
        ears.trouble(trouble)

    def event(event: Event) -> None:
        metrics.event(event)
        notifier.tell(event)
        ears.event(event)

    def view(view: FleetView) -> None:
        metrics.told = notifier.state
        metrics.view(view)
        ears.view(view)

    try:
        yield Ears(event, view, ears.trouble)
    finally:
        last = notifier.close(_CLOSE_SECONDS)
        if last.lost or last.waiting:
            ears.trouble(
                f"{last.lost + last.waiting} notifications did not arrive: {last.trouble or 'no time was left'}"
            )
        if exporter is not None:
            exporter.close()
