"""Rows of a run, one of them, its images, and rows as a file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from proctor.results import RunDir
from proctor.results.parts import checkpoint_of
from proctor.rows import ErrorKind, UserError
from proctor.spec import DrivingTaskSpec
from proctor.spec.camera import CameraSpec
from proctor.view.app.links import Address, number
from proctor.view.app.shown import shown, unasked
from proctor.view.app.site import Answer, Site
from proctor.view.app.waiting import patiently
from proctor.view.browse.evidence import Evidence, evidence_in, evidence_of
from proctor.view.browse.filters import FilterError, complete
from proctor.view.browse.rows import (
    EXPORTS,
    Cursor,
    Neighbours,
    Page,
    RowTable,
    attempts_of,
    count,
    export_rows,
    lists_of,
    neighbours,
    page,
    records_of,
)
from proctor.view.browse.rows.patience import EXPORT_SECONDS, Patience

MOST_WAYS = 24
_PIECE = 1 << 20
_SHORT = ("checkpoint", "sample_id", "error_kind", "finish_reason", "engine")
"""Columns of texts that are a word or two."""


def answers(site: Site) -> dict[str, Answer]:
    """What this room answers."""

    def rows(request: Request, patience: Patience) -> Response:
        address = Address.of(request.query_params)
        run, live = site.run(address), site.following("run", address)
        with site.shelf.table(run) as table:
            context = rows_page(table.within(patience), address, request.query_params)
        wrong = context["wrong"]
        return site.page(
            "rows.html.j2", 400 if wrong else 200, address=address, live=None if wrong else live, **context
        )

    def row(request: Request, patience: Patience) -> Response:
        address, given = Address.of(request.query_params), request.query_params
        run = site.run(address)
        row_id, checkpoint = number(given, "row"), given.get("checkpoint") or None
        with site.shelf.table(run) as table:
            context = row_page(run, table.within(patience), address, row_id, checkpoint)
        return site.page("row.html.j2", 200 if context["records"] else 404, address=address, **context)

    def image(request: Request) -> Response:
        address, given = Address.of(request.query_params), request.query_params
        data = site.images.jpeg(site.run(address), number(given, "row"), number(given, "n", 0))
        return Response(data, media_type="image/jpeg")

    def export(request: Request, patience: Patience) -> Response:
        address, form = Address.of(request.query_params), request.query_params.get("form", "")
        with site.shelf.table(site.run(address)) as table:
            return _file(table.within(patience), address, form)

    return {
        "/rows": patiently(rows),
        "/row": patiently(row),
        "/image": image,
        "/export": patiently(export, EXPORT_SECONDS),
    }


def _file(table: RowTable, address: Address, form: str) -> Response:
    kind = next((known for known in EXPORTS if known == form), None)
    if kind is None:
        raise UserError(f"no such format: {form[:40]!r}", fix=f"one of {', '.join(EXPORTS)}")
    file = _nameless(export_rows(table, address.query, kind))
    size = str(os.fstat(file.fileno()).st_size)
    headers = {"Content-Disposition": f'attachment; filename="rows{EXPORTS[kind].suffix}"', "Content-Length": size}
    return StreamingResponse(_pieces(file), headers=headers, media_type=EXPORTS[kind].media_type)


def _nameless(path: Path) -> BinaryIO:
    """The file, open, and without a name already: its space is free as soon as nobody reads it any more."""
    file = path.open("rb")
    path.unlink()
    return file


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(_PIECE):
            yield piece


def rows_page(table: RowTable, address: Address, given: QueryParams) -> dict[str, Any]:
    """Rows of a run; a filter that is none leaves the table empty and is told, with the place that is wrong."""
    columns = address.columns or unasked(table.columns)
    found, matched, wrong = Page([], None, None), 0, None
    try:
        after, before = (_place(given, name, address) for name in ("after", "before"))
        found = page(table, address.query, columns, size=address.size, after=after, before=before)
        alone = after is before is None and found.next is None  # then it has all of them, and they need no counting
        matched = len(found.rows) if alone else count(table, address.query)
    except UserError as error:
        wrong = error
    known = table.columns.own
    return {
        "columns": [name for name in dict.fromkeys(["row_id", "checkpoint", *columns]) if name in known],
        "known": known,
        "long": [name for name, column in known.items() if column.kind == "text" and name not in _SHORT],
        "names": [(name, column.kind) for name in table.columns.names if (column := table.columns.get(name))],
        "kinds": list(ErrorKind),
        "page": found,
        "total": table.total,
        "matched": matched,
        "wrong": wrong,
        "marked": _marked(address.query.filter, wrong),
        "ways_on": _ways_on(table, address, wrong),
        "damaged": table.damaged,
    }


def row_page(run: RunDir, table: RowTable, address: Address, row_id: int, checkpoint: str | None) -> dict[str, Any]:
    """A row, for one checkpoint or all."""
    records = records_of(table, row_id, checkpoint)
    lists = lists_of(table, row_id, checkpoint) or [{} for _ in records]
    beside, attempts = Neighbours(None, None), list[dict[str, Any]]()
    if checkpoint is not None and records:
        beside = neighbours(table, address.query, row_id, checkpoint)
        attempts = attempts_of(run, row_id, checkpoint)
    failed = any(one.get("error_kind") is not None for one in [*records, *attempts])
    files = evidence_of(run)[0] if failed else []
    camera = _camera(run)
    return {
        "row_id": row_id,
        "checkpoint": checkpoint,
        "records": [
            (shown(record, more, camera), _left_behind(record, files))
            for record, more in zip(records, lists, strict=False)
        ],
        "attempts": [(attempt, _left_behind(attempt, files)) for attempt in attempts],
        "beside": beside,
    }


def _camera(run: RunDir) -> CameraSpec | None:
    try:
        spec = run.spec()
    except UserError:  # the run's own page says what is wrong with it
        return None
    return spec.task.camera if spec is not None and isinstance(spec.task, DrivingTaskSpec) else None


def _left_behind(record: Mapping[str, Any], files: Sequence[Evidence]) -> list[Evidence]:
    if record.get("error_kind") is None:
        return []
    return evidence_in(str(record.get("error_message")), str(record.get("engine")), files)


def _place(given: QueryParams, name: str, address: Address) -> Cursor | None:
    text = given.get(name, "")
    return Cursor.from_text(text, address.query.sort.column) if text else None


def _ways_on(table: RowTable, address: Address, wrong: UserError | None) -> list[tuple[str, str]]:
    """What may follow a filter that breaks off: words, and the addresses of the filter with each."""
    text = address.query.filter
    if not isinstance(wrong, FilterError) or wrong.end < len(text):
        return []
    checkpoints = sorted({checkpoint_of(part) for part in table.parts})
    values: dict[str, Sequence[str]] = {"error_kind": list(ErrorKind), "checkpoint": checkpoints}
    found = complete(text, table.columns, values)[:MOST_WAYS]
    return [(one.text, address.with_filter(text[: one.start] + one.text)) for one in found]


def _marked(text: str, wrong: UserError | None) -> tuple[str, str, str] | None:
    """What stands before, at and after the place where a filter is wrong."""
    if not isinstance(wrong, FilterError):
        return None
    return text[: wrong.start], text[wrong.start : wrong.end] or "\u2009", text[wrong.end :]
