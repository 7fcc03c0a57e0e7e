"""Which group of a census a launch belongs to, and what the group is called."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from proctor.trace.model import pid_of
from proctor.trace.names import line_up
from proctor.trace.nvtx.innermost import innermost
from proctor.trace.nvtx.paths import OUTSIDE
from proctor.trace.work.census_rows import NO_CALL, Tallied

if TYPE_CHECKING:
    from proctor.trace.trace import Trace

WRAPPERS = frozenset({"device_kernel", "Kernel", "Kernel2", "kernel"})
"""Short names under which libraries hide whatever their template arguments say: CUTLASS 2 and 3 launch every GEMM, and
FlashAttention-3 its attention, as one of these. They are never a group."""

Key = int | str


class Groups(Protocol):
    """A way to group launches."""

    def key(self, row: Tallied) -> Key:
        """The group of these launches."""
        ...

    def texts(self, keys: Iterable[Key]) -> dict[Key, str]:
        """The groups' names, in full."""
        ...


def groups_of(trace: Trace, by: str) -> Groups:
    """The groups that ``by`` (a value of `proctor.trace.work.census.By`) names.

    Raises:
        UserError: by NVTX, and the trace has no ranges.
    """
    if by in ("stream", "device", "process"):
        return _Places(by)
    made: dict[str, Callable[[Trace], Groups]] = {
        "full": _Full,
        "short": _Short,
        "category": _Categories,
        "nvtx": _Ranges,
    }
    return made[by](trace)


class _Full:
    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def key(self, row: Tallied) -> Key:
        return row.name

    def texts(self, keys: Iterable[Key]) -> dict[Key, str]:
        texts = self._trace.text(key for key in keys if isinstance(key, int))
        return dict(texts.items())


class _Short:
    """By the short name of the trace; a wrapper's launches by their demangled name, for which a minus sign stands."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._of: dict[int, int] = {}
        self._shorts = dict(trace.rows("SELECT DISTINCT ifnull(name, -1), short FROM kernels"))

    def key(self, row: Tallied) -> Key:
        if row.name not in self._of:
            short: int | None = self._shorts.get(row.name)
            wrapped = short is not None and self._trace.text([short])[short] in WRAPPERS
            self._of[row.name] = -row.name if short is None or wrapped else short
        return self._of[row.name]

    def texts(self, keys: Iterable[Key]) -> dict[Key, str]:
        numbers = [key for key in keys if isinstance(key, int)]
        found = self._trace.text(abs(key) for key in numbers)
        return {key: found[abs(key)] for key in numbers}


class _Categories:
    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._line_up = line_up()
        self._of: dict[int, str] = {}

    def key(self, row: Tallied) -> Key:
        if row.name not in self._of:
            self._of[row.name] = self._line_up.place(self._trace.text([row.name])[row.name]).category
        return self._of[row.name]

    def texts(self, keys: Iterable[Key]) -> dict[Key, str]:
        return {key: str(key) for key in keys}


class _Ranges:
    """By the innermost range around the launching call: all ranges of one name together, wherever they are nested."""

    def __init__(self, trace: Trace) -> None:
        self._paths = innermost(trace).paths
        if len(self._paths) == 1:
            raise trace.missing("annotations", "a census by NVTX range")

    def key(self, row: Tallied) -> Key:
        path = NO_CALL if row.path is None else row.path
        if path in (OUTSIDE, NO_CALL):
            return path
        around = self._paths[path]
        return f"{around.domain}: {around.name}" if around.domain else around.name

    def texts(self, keys: Iterable[Key]) -> dict[Key, str]:
        words: dict[Key, str] = {
            OUTSIDE: "(outside of every range)",
            NO_CALL: "(the trace has no call that launched it)",
        }
        return {key: words.get(key, str(key)) for key in keys}


class _Places:
    """By stream, by device as its process numbers it, or by process."""

    def __init__(self, by: str) -> None:
        self._by = by

    def key(self, row: Tallied) -> Key:
        assert row.place is not None  # only a census by name or category does without places
        process, device, context, stream = row.place
        pid = pid_of(process) if process >= 0 else -1
        if self._by == "process":
            return f"process {pid}"
        if self._by == "device":
            return f"device {device}, process {pid}"
        return f"device {device}, stream {stream}, context {context}, process {pid}"

    def texts(self, keys: Iterable[Key]) -> dict[Key, str]:
        return {key: str(key) for key in keys}
