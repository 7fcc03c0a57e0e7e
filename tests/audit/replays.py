"""Audits whose engines declare other abilities, or keep what they were asked: for tests of replays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from proctor.audit.bench import Asking, EngineOrder
from proctor.audit.conduct import Audit, Auditor, Shown
from proctor.audit.lab import Lab
from proctor.engines.capabilities import capabilities
from proctor.rows import Request, Response
from proctor.spec import build_spec
from tests.audit.planted import InProcess, spec_of

BATCH: dict[str, Any] = {"audit": {"arms": ["repeat", "batch"]}, "batch_size": 4}


def able(**changed: Any) -> AbstractContextManager[object]:
    """Engines that declare other abilities than they have."""

    def declared(*arguments: Any) -> Any:
        return replace(capabilities(*arguments), **changed)

    return patch("proctor.audit.conduct.capabilities", declared)


def shown(audit: Audit, arm: str) -> Shown:
    return next(one for one in audit.arms if one.arm.name == arm)


class Recording(InProcess):
    """Keeps every request, and says of forced tokens what a prompt pass may say: something else."""

    asked: list[Request]
    shift = 0.0

    def ask(self, requests: Sequence[Request]) -> list[Response]:
        type(self).asked += requests
        return [
            self._told(request, response) for request, response in zip(requests, super().ask(requests), strict=True)
        ]

    def _told(self, request: Request, response: Response) -> Response:
        if not request.sampling.forced or response.logprobs is None:
            return response
        top = [tuple((token, value - self.shift) for token, value in place) for place in response.top_logprobs or ()]
        return replace(
            response, logprobs=tuple(value - self.shift for value in response.logprobs), top_logprobs=tuple(top)
        )


def recorded(folder: Path, *effects: dict[str, Any], shift: float = 0.0, **settings: Any) -> tuple[Audit, Lab]:
    Recording.asked, Recording.shift = [], shift

    @contextmanager
    def start(order: EngineOrder) -> Iterator[Asking]:
        yield Recording(order)

    return Auditor(build_spec(spec_of(folder, *effects, **settings)), start=start).run()
