"""A bench of compilation: what to compile, when that pays, and what it rests on."""

from __future__ import annotations

from functools import lru_cache

from starlette.requests import Request
from starlette.responses import Response

from proctor.compile.store import BENCH
from proctor.compile.verdict import verdict
from proctor.rows import UserError
from proctor.rows.text import told
from proctor.view.app.links import Address
from proctor.view.app.site import Answer, Site
from proctor.view.browse.benches import bench_content, measured_of
from proctor.view.browse.runs import DAMAGE
from proctor.view.compile_view import CompileView, gather

_KEPT = 4
"""Benches that were looked at last: to judge one takes a second or more, and always ends the same."""


def answers(site: Site) -> dict[str, Answer]:
    """What this room answers."""

    def bench(request: Request) -> Response:
        address = Address.of(request.query_params).place
        folder = site.folder(address)
        try:
            view = _judged(bench_content(folder), f"{folder.location}/{BENCH}")
            return site.page("benches.html.j2", address=address, view=view)
        except DAMAGE as error:  # well-formed, and yet such as no bench writes
            raise UserError(f"this bench is damaged: {told(error)}", where=folder.location) from error

    return {"/bench": bench}


@lru_cache(_KEPT)
def _judged(content: bytes, where: str) -> CompileView:
    measured = measured_of(content, where)
    return gather(measured, verdict(measured))
