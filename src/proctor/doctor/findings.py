"""What the doctor finds, and how each check is kept within its time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Literal

from proctor.rows import UserError, told
from proctor.trackers.redaction import redacted

Level = Literal["ok", "absent", "warning", "missing"]
"""`absent`: not there, and not needed; `warning`: works, but look at it; `missing`: what is needed is not there."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        topic: what it belongs to: ``python``, ``machine``, ``gpu``, ``ray``, ``engine``, ``storage`` ...
        name: what was looked at.
        level: how it is.
        what: what was found, in a line.
        fix: the command or the change that mends it; empty if there is nothing to mend.
    """

    topic: str
    name: str
    level: Level
    what: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """Something to look at.

    Attributes:
        topic, name: as in `Finding`.
        look: gives the findings; may take any time, may raise anything.
        needed: whether an answer that does not come in time, or an error, is `missing` and not only a `warning`.
    """

    topic: str
    name: str
    look: Callable[[], Iterable[Finding]]
    needed: bool = False


def examine(checks: Sequence[Check], seconds: float) -> list[Finding]:
    """Does all `checks` at the same time, each in its thread, and gives what they find in their order.

    One that has not answered after `seconds` is left to itself; the finding then says so.
    """
    give_up = time.monotonic() + seconds
    replies = [_begin(check) for check in checks]
    return [
        _without_secrets(finding)
        for check, reply in zip(checks, replies, strict=True)
        for finding in _answer(check, reply, give_up, seconds)
    ]


def _begin(check: Check) -> SimpleQueue[list[Finding]]:
    replies: SimpleQueue[list[Finding]] = SimpleQueue()
    threading.Thread(
        target=lambda: replies.put(_looked(check)), name=f"proctor-doctor-{check.name}", daemon=True
    ).start()
    return replies


def _looked(check: Check) -> list[Finding]:
    try:
        return list(check.look())
    except UserError as error:
        what = error.what if error.where is None else f"{error.where}: {error.what}"
        return [Finding(check.topic, check.name, _bad(check), what, error.fix or "")]
    except Exception as error:  # one check that fails must not keep the others from being told
        return [Finding(check.topic, check.name, _bad(check), told(error))]


def _answer(check: Check, reply: SimpleQueue[list[Finding]], give_up: float, seconds: float) -> Iterator[Finding]:
    try:
        yield from reply.get(timeout=max(0.001, give_up - time.monotonic()))
    except Empty:
        what = f"no answer within {seconds:g} s"
        yield Finding(check.topic, check.name, _bad(check), what, "give it more time with --seconds")


def _bad(check: Check) -> Level:
    return "missing" if check.needed else "warning"


def _without_secrets(finding: Finding) -> Finding:
    """What libraries and servers say may hold anything."""
    return Finding(finding.topic, finding.name, finding.level, redacted(finding.what), redacted(finding.fix))
