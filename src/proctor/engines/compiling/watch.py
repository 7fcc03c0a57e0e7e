"""What the compiler did for each target: graphs, breaks, recompilations, limits, its cache and its time.

Costs nothing while compiled code runs: PyTorch calls back when a compilation starts and ends, and whose it is stands on
the Python stack at that moment. Sources of the figures: ``torch._dynamo.utils.counters`` (unique graphs, the cache of
graphs), ``graph_break_reasons`` and ``get_compilation_metrics`` of the same module (torch 2.13).
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Mapping, Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple, Protocol

import msgspec
from torch._dynamo import utils as dynamo
from torch._dynamo.callback import CallbackArgs, callback_handler

from proctor.engines import news

_LIMIT_LOGGER = "torch._dynamo.convert_frame"
_LIMIT_TEXT = "torch._dynamo hit config."
_KEPT_METRICS = 4096
_TEXT_LIMIT = 300
_ADVICE = re.compile(r"User stack trace:|\(user code shown|Guard failed on a parameter")
"""Where a reason ends and PyTorch's general advice begins."""


class Seen(msgspec.Struct, frozen=True):
    """What was seen of one target.

    Attributes:
        graphs: unique graphs.
        seconds: inside the compiler.
        breaks: graph breaks, each as one line with its reason and place.
        recompiles: each as one line with its reason.
        fallbacks: limits that were hit, as one line each: from then on what is not compiled yet runs eagerly.
        cache_hits, cache_misses: of the compiler's cache of graphs on disk.
    """

    graphs: int = 0
    seconds: float = 0.0
    breaks: tuple[str, ...] = ()
    recompiles: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()
    cache_hits: int = 0
    cache_misses: int = 0

    def __add__(self, other: Seen) -> Seen:
        return Seen(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))

    def since(self, earlier: Seen) -> Seen:
        """What has come to it after `earlier`."""
        return Seen(*(_after(getattr(self, name), getattr(earlier, name)) for name in self.__struct_fields__))


def _after(now: Any, earlier: Any) -> Any:
    return now[len(earlier) :] if isinstance(now, tuple) else now - earlier


class Watch:
    """What is seen of the targets that were compiled together.

    Args:
        targets: their names.
    """

    def __init__(self, targets: list[str]) -> None:
        self._seen = {name: Seen() for name in targets}
        self._told = dict(self._seen)
        self._compilations: list[tuple[str, str]] = []
        _listen()

    @property
    def counters(self) -> dict[str, Seen]:
        """What has been seen so far, by target."""
        self._fetch_reasons()
        return dict(self._seen)

    def changes(self) -> dict[str, Seen]:
        """What is new since this was asked last, by target; targets without anything new are left out."""
        now = self.counters
        new = {name: seen.since(self._told[name]) for name, seen in now.items() if seen != self._told[name]}
        self._told = now
        return new

    def add(self, target: str, more: Seen, compile_id: str = "") -> None:
        """Adds what was seen; `compile_id` is PyTorch's name of the compilation, whose reason comes later."""
        self._seen[target] += more
        if compile_id:
            self._compilations.append((compile_id, target))

    def _fetch_reasons(self) -> None:
        """PyTorch files the reason of a recompilation after its end."""
        if not self._compilations:
            return
        reasons = {metrics.compile_id: metrics.recompile_reason for metrics in dynamo.get_compilation_metrics()}
        for compile_id, target in self._compilations:
            if reason := reasons.get(compile_id):
                self._seen[target] += Seen(recompiles=(one_line(_ADVICE.split(reason)[0]),))
        self._compilations.clear()


class Owner(NamedTuple):
    """Whose compilation it is."""

    watch: Watch
    target: str


class Compiled(Protocol):
    """A call that may compile."""

    owner: Owner

    def compiles(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """The compiler is about to look at these arguments."""

    def ended(self) -> None:
        """It has ended, well or not."""


calls: dict[CodeType, str] = {}
"""Code objects whose frames are such calls, which they have in the local variable of this name beside `args` and
`kwargs`."""


def one_line(text: object) -> str:
    """The text in one line of bounded length."""
    return " ".join(str(text).split())[:_TEXT_LIMIT]


class _Mark(NamedTuple):
    call: Compiled
    began: float
    figures: tuple[int, int, int]
    breaks: int


_marks: list[_Mark] = []
"""Of the compilation that is under way: PyTorch calls back for the outermost one alone."""


def _listen() -> None:
    """Has PyTorch call back, once in a process; again after someone cleared its list."""
    if _started not in callback_handler.start_callbacks:
        callback_handler.register_start_callback(_started)
        callback_handler.register_end_callback(_ended)
        dynamo.set_compilation_metrics_limit(_KEPT_METRICS)
    logger = logging.getLogger(_LIMIT_LOGGER)
    if not any(isinstance(handler, _Limits) for handler in logger.handlers):
        logger.addHandler(_Limits(logging.WARNING))


def _running() -> tuple[Compiled, FrameType] | None:
    """The innermost call that may compile, with its frame."""
    frame = sys._getframe(1).f_back
    while frame is not None:
        name = calls.get(frame.f_code)
        if name is not None:
            return frame.f_locals[name], frame
        frame = frame.f_back
    return None


def _started(_: CallbackArgs) -> None:
    running = _running()
    if running is not None:
        news.compiling(began=True)
        call, frame = running
        call.compiles(frame.f_locals["args"], frame.f_locals["kwargs"])
        _marks.append(_Mark(call, time.monotonic(), _figures(), len(dynamo.graph_break_reasons)))


def _ended(arguments: CallbackArgs) -> None:
    if not _marks:
        return
    mark = _marks.pop()
    mark.call.ended()
    news.compiling(began=False)
    graphs, hits, misses = (now - then for now, then in zip(_figures(), mark.figures, strict=True))
    more = Seen(
        graphs=graphs,
        seconds=time.monotonic() - mark.began,
        breaks=tuple(map(_broken, dynamo.graph_break_reasons[mark.breaks :])),
        cache_hits=hits,
        cache_misses=misses,
    )
    watch, target = mark.call.owner
    watch.add(target, more, arguments.compile_id)


def _figures() -> tuple[int, int, int]:
    """Unique graphs, and hits and misses of the cache of graphs."""
    counters = dynamo.counters
    inductor = counters["inductor"]
    return counters["stats"]["unique_graphs"], inductor["fxgraph_cache_hit"], inductor["fxgraph_cache_miss"]


def _broken(reason: Any) -> str:
    place = reason.user_stack[-1] if reason.user_stack else None
    where = f" ({place.filename.rpartition('/')[2]}:{place.lineno} in {place.name})" if place else ""
    return one_line(str(reason.reason).strip().partition("\n")[0]) + where


class _Limits(logging.Handler):
    """PyTorch says that a limit was hit in its log alone."""

    def emit(self, record: logging.LogRecord) -> None:
        """Files it with the target that it happened to."""
        if not str(record.msg).startswith(_LIMIT_TEXT) or not isinstance(record.args, tuple):
            return
        running = _running()
        if running is not None:
            owner = running[0].owner
            limit, value, _, reason, *_ = record.args
            reason = _ADVICE.split(str(reason))[0]
            owner.watch.add(owner.target, Seen(fallbacks=(one_line(f"{limit} of {value} was hit: {reason}"),)))
