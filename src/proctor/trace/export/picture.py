"""The timeline as one HTML file that draws itself: canvas, zoom, search; nothing is fetched.

The page carries two blobs, deflated and in base64, so that no name of a trace stands in the markup: ``meta`` is JSON
(rows, names, details), ``data`` holds five columns for each row, one after the other: start (as the difference to the
row's event before), duration + 1 (0: the trace does not see it end), name, detail, bytes + 1 (0: none). A column is
stored byte by byte: the lowest byte of all its values, then the next, as many as its largest value needs.
"""

from __future__ import annotations

import base64
import json
import zlib
from array import array
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.rows import UserError
from proctor.trace.export.tracks import Track, Tracks, process_name
from proctor.trace.timeline.timeline import KINDS, Event

if TYPE_CHECKING:
    import numpy as np

    from proctor.trace.trace import Trace

MOST_EVENTS = 5_000_000
"""A browser holds about 40 bytes an event."""
_MOST_BYTES = (1 << 63) - 2
_SCRIPTS = ("data.js", "draw.js", "view.js")


def write_picture(trace: Trace, events: Iterator[Event], path: Path, zero: int) -> int:
    """Writes the picture; returns how many events are in it.

    Raises:
        UserError: there are more events than a browser bears.
    """
    picture = _Picture(trace, zero)
    for event in events:
        picture.add(event)
        if picture.count > MOST_EVENTS:
            raise UserError(
                f"more than {MOST_EVENTS:,} events are too many for a browser",
                where=str(trace.path),
                fix="choose some with --since, --until, --kind or --device, or write .json or .parquet",
            )
    path.write_text(_page(trace, picture), encoding="utf-8")
    return picture.count


class _Row:
    """Events of one lane at one depth: none overlaps another."""

    def __init__(self, track: Track, depth: int) -> None:
        self.track = track
        self.depth = depth
        self.columns = (array("q"), array("q"), array("I"), array("I"), array("q"))
        self._last = 0

    def add(self, event: Event, start: int, name: int, detail: int) -> None:
        starts, durations, names, details, sizes = self.columns
        starts.append(start - self._last)
        self._last = start
        durations.append(0 if event.end is None else max(0, event.end - event.start) + 1)
        names.append(name)
        details.append(detail)
        sizes.append(0 if event.bytes is None else min(max(0, event.bytes), _MOST_BYTES) + 1)


class _Picture:
    def __init__(self, trace: Trace, zero: int) -> None:
        self.count = 0
        self.last = 0
        self.names: dict[tuple[int, str], int] = {}
        self.details: dict[str, int] = {}
        self._trace = trace
        self._zero = zero
        self._tracks = Tracks(trace)
        self._rows: dict[tuple[int, int], _Row] = {}
        self._kinds = {kind: position for position, kind in enumerate(KINDS)}

    def add(self, event: Event) -> None:
        track, depth = self._tracks.place(event)
        row = self._rows.get((track.number, depth))
        if row is None:
            row = self._rows[track.number, depth] = _Row(track, depth)
        start = max(0, event.start - self._zero)  # what has no start (0) is drawn at the beginning
        name = self.names.setdefault((self._kinds[event.kind], event.name), len(self.names))
        row.add(event, start, name, self.details.setdefault(event.detail, len(self.details)))
        self.count += 1
        self.last = max(self.last, start, 0 if event.end is None else event.end - self._zero)

    def rows(self) -> list[_Row]:
        """GPUs first, then threads, each with its lanes and depths in order."""

        return sorted(self._rows.values(), key=lambda row: (row.track.order, row.depth))

    def group(self, track: Track) -> str:
        process = process_name(self._trace, track.process)
        if track.device is None:
            return process
        return f"GPU {track.device} {self._trace.gpu(track.device, track.process).name}".rstrip() + f" of {process}"


def _page(trace: Trace, picture: _Picture) -> str:
    from jinja2 import Environment

    data = bytearray()
    rows = []
    for row in picture.rows():
        packed = [_packed(column) for column in row.columns]
        lane = f" ({row.track.lane + 1})" if row.track.lane else ""
        rows.append(
            {
                "group": picture.group(row.track),
                "name": row.track.name + lane,
                "depth": row.depth,
                "count": len(row.columns[0]),
                "widths": [width for width, _ in packed],
            }
        )
        for _, column in packed:
            data += column
    meta = {
        "rows": rows,
        "kinds": KINDS,
        "names": list(picture.names),
        "details": list(picture.details),
        "last": picture.last,
        "origin": picture._zero,
    }
    templates = files("proctor.trace.export") / "templates"
    texts = {name: (templates / name).read_text("utf-8") for name in ("picture.html", "picture.css", *_SCRIPTS)}
    page = Environment(autoescape=True).from_string(texts["picture.html"])
    return page.render(
        title=trace.path.name,
        style=texts["picture.css"],
        script="\n".join(texts[name] for name in _SCRIPTS),
        meta=_blob(json.dumps(meta).encode()),
        data=_blob(bytes(data)),
        events=picture.count,
    )


def _packed(column: array[int]) -> tuple[int, bytes]:
    """Number of bytes a value, and the values byte by byte."""
    import numpy as np

    values: np.ndarray[Any, Any] = np.asarray(column, dtype="<i8")
    width = max(1, (int(values.max(initial=0)).bit_length() + 7) // 8)
    return width, values.view(np.uint8).reshape(-1, 8)[:, :width].T.tobytes()


def _blob(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content, 6)).decode()
