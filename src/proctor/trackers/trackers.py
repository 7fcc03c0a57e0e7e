"""All trackers of a run, behind one port."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from proctor.rows import Event, UserError
from proctor.spec import JsonlTrackerSpec, MlflowTrackerSpec, TrackerSpec, tracker_name
from proctor.spec.trackers import FilesTrackerBase
from proctor.storage.folder import Folder, LocalFolder
from proctor.trackers.book import FOLDER, Book
from proctor.trackers.courier import ProcessCourier
from proctor.trackers.entries import Value
from proctor.trackers.messages import Open
from proctor.trackers.outlet import Closed, Outlet
from proctor.trackers.sender import Sender

_MODULES = {"mlflow": "mlflow", "wandb": "wandb", "comet": "comet_ml", "tensorboard": "tensorboardX"}
Tell = Callable[[Event], None]


class Trackers:
    """Tells every tracker of `specs` how a run goes. No call waits for any of them but `close`, which is bounded.

    Args:
        specs: as in the run's spec.
        run: the run directory.
        tell: is told when a tracker fails, recovers, or is incomplete at the end.
        held: whether the run directory may still be written to.
    """

    def __init__(
        self, specs: Sequence[TrackerSpec], run: Folder, tell: Tell, held: Callable[[], bool] = lambda: True
    ) -> None:
        self._specs = list(specs)
        self._tell = _hushed(tell, held)
        self._outlets = [_outlet(spec, run, self._tell, held) for spec in specs]
        self._due = [0.0] * len(specs)

    def params(self, values: Mapping[str, Value]) -> None:
        """What the run was set to. A resumed run keeps those it began with: most trackers let nobody change them."""
        for outlet in self._outlets:
            outlet.put("params", 0, values)

    def log(self, step: int, metrics: Mapping[str, Value], *, always: bool = False) -> None:
        """How it goes, at `step`: for each tracker whose last report is long enough ago, or for all."""
        now = time.monotonic()
        for i, (spec, outlet) in enumerate(zip(self._specs, self._outlets, strict=True)):
            if always or now >= self._due[i]:
                self._due[i] = now + spec.every_seconds
                outlet.put("metrics", step, metrics)

    def summary(self, step: int, values: Mapping[str, Value]) -> None:
        """How it ended."""
        for outlet in self._outlets:
            outlet.put("summary", step, values)

    def close(self, timeout: float | None = None, *, ok: bool | None = None) -> list[Closed]:
        """Sends what is left, all trackers at the same time, and ends their processes.

        Returns within `timeout` seconds (default: each tracker's own ``close_seconds``), and a few for ending the
        processes, whatever the trackers do; also when it is interrupted.

        Args:
            timeout: most seconds.
            ok: whether the run went well, for the trackers.
        """
        try:
            for spec, outlet in zip(self._specs, self._outlets, strict=True):
                outlet.begin_close(spec.close_seconds if timeout is None else timeout, ok=ok)
            closed = [outlet.end_close() for outlet in self._outlets]
        finally:
            for outlet in self._outlets:
                outlet.kill()
        for state in closed:
            if not state.complete:
                self._tell(Event("tracker.incomplete", action="kept on disk", message=_incomplete(state)))
        return closed


def check_trackers(specs: Sequence[TrackerSpec], run: Folder) -> None:
    """Whether the trackers of `specs` can be opened at all; sends nothing.

    Raises:
        UserError: a library is not installed, or there is no address or local directory for one.
    """
    for i, spec in enumerate(specs):
        where = f"trackers.{i}"
        module = _MODULES.get(spec.kind)
        if module is not None and find_spec(module) is None:
            raise UserError(f"{spec.kind} is not installed", where=where, fix=f"pip install 'proctor[{spec.kind}]'")
        if isinstance(spec, MlflowTrackerSpec) and not (spec.uri or os.environ.get("MLFLOW_TRACKING_URI")):
            raise UserError("no server to send to", where=f"{where}.uri", fix="set it, or MLFLOW_TRACKING_URI")
        if isinstance(spec, FilesTrackerBase) and _directory(spec, run) is None:
            what = f"the run directory is no local one, so {tracker_name(spec)} needs a directory for its files"
            raise UserError(what, where=f"{where}.dir", fix="name a local directory")


def sender_of(spec: TrackerSpec, run: Folder, book: Book, tell: Tell, patience: float | None = None) -> Sender:
    """What sends the entries of `book` to the tracker of `spec`, with its own or the given patience."""
    message = Open(
        kind=spec.kind,
        settings=spec.model_dump(mode="json"),
        key=book.key,
        run_name=spec.run_name or PurePosixPath(run.location).name or "run",
        directory=_directory(spec, run) if isinstance(spec, FilesTrackerBase) else None,
    )
    seconds = spec.patience_seconds if patience is None else patience
    return Sender(tracker_name(spec), book, lambda: ProcessCourier(message), tell, seconds)


def _outlet(spec: TrackerSpec, run: Folder, tell: Tell, held: Callable[[], bool]) -> Outlet:
    name = tracker_name(spec)
    sender = None if isinstance(spec, JsonlTrackerSpec) else lambda book: sender_of(spec, run, book, tell)
    return Outlet(name, lambda: Book(run, name), sender, tell, held)


def _directory(spec: FilesTrackerBase, run: Folder) -> str | None:
    if spec.dir is not None:
        return spec.dir
    own = f"{FOLDER}/{tracker_name(spec)}"  # type: ignore[arg-type]
    return str(Path(run.location).absolute() / own) if isinstance(run, LocalFolder) else None


def _incomplete(state: Closed) -> str:
    left = state.written - state.arrived
    text = f"{state.name} has {state.arrived:,} of {state.written:,} entries"
    lost = f"; {state.lost:,} could not be written down" if state.lost else ""
    cure = f"; `proctor tracker sync` sends the other {left:,}" if left else ""
    return f"{text}{lost}{': ' + state.trouble if state.trouble else ''}{cure}"


def _hushed(tell: Tell, held: Callable[[], bool]) -> Tell:
    """Telling is no reason to fail, and nothing is told in a run directory that another driver holds."""

    def told_softly(event: Event) -> None:
        with contextlib.suppress(OSError):
            if held():
                tell(event)

    return told_softly
