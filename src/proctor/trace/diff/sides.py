"""One side of a diff: the words for what is compared."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from proctor.trace.diff.split import Amount
from proctor.trace.model import Gpu
from proctor.trace.trace import Trace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


ATTENTION, MERGE, KV_CACHE = "attention", "attention merge", "KV cache"
GEMM, SPLIT_K, COMMUNICATION = "gemm", "split-K reduce", "communication"
"""Categories of the line-up that are asked for by name."""


class Kind(StrEnum):
    """What a GPU did."""

    KERNEL = "kernel"
    COPY = "copy"
    MEMSET = "memset"
    GRAPH = "graph"
    """A whole CUDA graph, whose kernels were not recorded one by one."""


class Shape(NamedTuple):
    """How much work a launch was given: launches of the same kernel and shape are repeats of each other."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]


class Config(NamedTuple):
    """Everything a kernel was launched with; None where the trace does not say."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int | None
    static_shared: int | None
    dynamic_shared: int | None
    cluster: tuple[int, int, int] | None


NO_SHAPE = Shape((0, 0, 0), (0, 0, 0))
"""Of what is no kernel."""


@dataclass(frozen=True, slots=True)
class Work:
    """All launches of one identity on one side.

    Attributes:
        kind: what it is.
        name: its normal form; of copies the direction and the kinds of memory.
        full: the name as the trace has it.
        category: from the line-up; the kind itself for what is no kernel.
        rule: the line-up's rule that placed it; empty for what is no kernel, or where none fits.
        launches: durations in ns by shape, each in the order they ran.
        configs: launches by what they were launched with.
        bytes: moved or set, of copies and memsets.
        ids: of a kernel's names in the trace's strings.
    """

    kind: Kind
    name: str
    full: str
    category: str
    rule: str
    launches: dict[Shape, NDArray[np.int64]]
    configs: Counter[Config] = field(default_factory=Counter)
    bytes: int = 0
    ids: tuple[int | None, ...] = ()

    @property
    def amount(self) -> Amount:
        """Launches and their summed time."""
        return Amount(
            sum(len(times) for times in self.launches.values()), sum(int(t.sum()) for t in self.launches.values())
        )

    @property
    def all(self) -> NDArray[np.int64]:
        """Every duration, whatever the shape."""
        import numpy as np

        return np.concatenate(list(self.launches.values()))


@dataclass(frozen=True, slots=True)
class Side:
    """What is compared of a trace.

    Attributes:
        trace: for what needs another look.
        works: everything that ran on a GPU, by (kind, name).
        syncs: synchronisations by kind.
        calls: calls of the CUDA API by name, without version suffixes.
        ranges: NVTX ranges that were opened, by text, without PyTorch's numbers of single calls.
        paths: kernels by the path of the ranges around their launch; None for those whose launch the trace lacks.
        span: first start and last end of GPU work, ns.
        gpus: those that kernels ran on, one entry per process that numbers them, in the order of their processes.
        ranks: processes with kernels.
        cut: kernels whose launch the trace lacks: it lies before the window. 0 where no calls were recorded.
    """

    trace: Trace
    works: dict[tuple[Kind, str], Work]
    syncs: dict[str, Amount]
    calls: dict[str, Amount]
    ranges: Counter[str]
    paths: dict[str | None, Amount]
    span: tuple[int, int]
    gpus: tuple[Gpu, ...]
    ranks: int
    cut: int

    def amount(self, *kinds: Kind) -> Amount:
        """Launches and summed time of all work of these kinds (none named: all)."""
        amounts = [work.amount for work in self.works.values() if not kinds or work.kind in kinds]
        return Amount(sum(a.calls for a in amounts), sum(a.total for a in amounts))

    @property
    def kernels(self) -> list[Work]:
        """The kernels, as one entry each."""
        return [work for work in self.works.values() if work.kind is Kind.KERNEL]
