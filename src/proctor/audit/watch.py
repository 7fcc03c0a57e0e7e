"""What befalls an audit's engines: faults are told, and the stack dumps and logs of those that fail are kept."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from proctor.audit.bench import Asking, EngineOrder, supervised
from proctor.rows import Event
from proctor.storage.folder import Folder

STALLS = "stalls"
"""Folder of an audit's directory that dumps and logs go to."""
_MOST = 20
_TROUBLES = {
    "breaker.opened",
    "engine.crashed",
    "engine.ended_idle",
    "engine.init_failed",
    "engine.stalled",
    "engine.unkillable",
    "supervisor.failed",
}


@contextmanager
def watched(beside: Folder, audit: str, tell: Callable[[Event], None] | None = None) -> Iterator[Watch]:
    """A watch over engines; what failed ones leave goes into an audit's directory at the end, also if the audit fails.

    Args:
        beside: the folder that the audit's directory lies in.
        audit: name of that directory.
        tell: see `Watch`.

    Raises:
        OSError: the directory cannot be written to.
    """
    with tempfile.TemporaryDirectory(prefix="proctor-audit-") as directory:
        watch = Watch(Path(directory), audit, tell)
        try:
            yield watch
        except Exception:
            with suppress(OSError):  # why it failed is worth more than what it left
                watch.keep(beside.below(audit))
            raise
        watch.keep(beside.below(audit))


class Watch:
    """Starts the engines of one audit.

    An audit's own directory is made at its end, since an earlier one may lie there until then. What engines leave
    meanwhile goes to `directory`, and is spoken of under the name that it will have.

    Args:
        directory: local, for as long as the audit runs.
        audit: name of the audit's directory.
        tell: is told of every fault, as ``audit.engine.stalled`` and so on; may be called from another thread.
    """

    def __init__(self, directory: Path, audit: str, tell: Callable[[Event], None] | None = None) -> None:
        self._directory, self._audit, self._tell = directory, audit, tell
        self._since = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        self._engines = self._faults = 0
        self._told: list[str] = []

    @property
    def troubles(self) -> tuple[str, ...]:
        """What befell engines, a line each; the first ones, and how many more there were."""
        more = self._faults - len(self._told)
        return (*self._told, f"and {more} more") if more else tuple(self._told)

    @contextmanager
    def start(self, order: EngineOrder) -> Iterator[Asking]:
        """The order's engine, under a supervisor (see `proctor.audit.bench.Start`)."""
        self._engines += 1
        name, before = f"{self._since}-{self._engines}", self._faults
        try:
            with supervised(order, name=name, stalls=self._directory, listen=self._heed, said=self._said) as engine:
                yield engine
        finally:
            if self._faults == before:  # the log of an engine that did its work tells nothing
                (self._directory / f"{name}.log").unlink(missing_ok=True)

    def keep(self, folder: Folder) -> None:
        """Takes what failed engines left over into the audit's directory.

        Raises:
            OSError: it cannot be written to.
        """
        for path in sorted(self._directory.iterdir()):
            folder.write(f"{STALLS}/{path.name}", path.read_bytes())

    def _heed(self, event: Event) -> None:
        if event.kind not in _TROUBLES:
            return
        self._faults += 1
        message = self._said(event.message)
        if len(self._told) < _MOST:
            self._told.append(f"{event.kind}: {message}")
        if self._tell is not None:
            data = {key: self._said(value) if isinstance(value, str) else value for key, value in event.data.items()}
            self._tell(msgspec.structs.replace(event, kind=f"audit.{event.kind}", message=message, data=data))

    def _said(self, text: str) -> str:
        return text.replace(f"{self._directory}/", f"{self._audit}/{STALLS}/")
