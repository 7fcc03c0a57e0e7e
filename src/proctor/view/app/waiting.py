"""Pages that ask the database: their questions end when their time is up, or when nobody waits for them any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from proctor.view.browse.rows.patience import QUERY_SECONDS, Patience

Asking = Callable[[Request, Patience], Response]


def patiently(answer: Asking, seconds: float = QUERY_SECONDS) -> Callable[[Request], Awaitable[Response]]:
    """An answer that is told how patient it may be: so many seconds, and until whoever asked has gone away."""

    async def attended(request: Request) -> Response:
        patience = Patience(seconds)
        leaving = asyncio.create_task(_gone(request, patience))
        try:
            return await run_in_threadpool(answer, request, patience)
        finally:
            leaving.cancel()

    return attended


async def _gone(request: Request, patience: Patience) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    patience.give_up()
