"""What ran on one GPU, sorted into compute, communication and copies while rows come in order of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor.trace.names import line_up
from proctor.trace.overlap.alternation import Alternation
from proctor.trace.work.busy import Key, Union
from proctor.trace.work.census_copies import kind_of_copy
from proctor.trace.work.device_work import Work
from proctor.trace.work.intervals import Coverage

if TYPE_CHECKING:
    from proctor.trace.trace import Trace

KINDS = ("compute", "communication", "copies", "local_copies", "memsets", "graphs")
"""Kinds of work; their positions are the bits of `proctor.trace.work.intervals.Coverage`."""
COMPUTE, COMMUNICATION, COPIES, LOCAL, MEMSETS, GRAPHS = range(len(KINDS))
_OF_VIEW = {"memsets": MEMSETS, "graphs": GRAPHS}
_COMMUNICATION = "communication"
_PACKING = frozenset({"copy", "KV cache", "index"})
"""Categories of kernels that move data into or out of a buffer."""
_ON_DEVICE = 8
"""``copies.kind`` of a copy within one device."""


class Sorter:
    """Knows what kind of work a row is; kernels are placed by the line-up, once for each name."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._line_up = line_up()
        self._category: dict[int | None, str] = {None: ""}

    def category(self, name: int | None) -> str:
        """The category of a kernel."""
        if name not in self._category:
            assert name is not None
            self._category[name] = self._line_up.place(self._trace.text([name])[name]).category
        return self._category[name]

    def kind(self, work: Work) -> int:
        """The position of its kind in `KINDS`."""
        if work.view == "copies":
            return LOCAL if work.what == _ON_DEVICE else COPIES
        if work.view != "kernels":
            return _OF_VIEW[work.view]
        return COMMUNICATION if self.category(work.what) == _COMMUNICATION else COMPUTE

    def packs(self, work: Work) -> bool:
        """Whether it moves data within the device, as what fills a buffer for a transfer does."""
        return self.kind(work) == LOCAL or (work.view == "kernels" and self.category(work.what) in _PACKING)

    def name(self, work: Work) -> str:
        """What it was, for evidence: a kernel's name or a copy's direction."""
        if work.view == "copies":
            return f"copy {kind_of_copy(work.what)}"
        return "" if work.what is None else self._trace.text([work.what])[work.what]


class Lane:
    """One GPU.

    Attributes:
        coverage: which kinds ran at once.
        by_stream: for each stream the busy time of each kind, and how many.
        communication, transfers: how buffers are filled in turn with communication kernels, and with copies that leave
            the device.
    """

    def __init__(self) -> None:
        self.coverage = Coverage(kinds=len(KINDS))
        self.by_stream: dict[Key, tuple[list[Union], list[int]]] = {}
        self.communication = Alternation()
        self.transfers = Alternation()

    @property
    def places(self) -> list[Key]:
        """Its streams, in order of appearance."""
        return list(self.by_stream)

    def add(self, work: Work, sorter: Sorter) -> None:
        """Takes the next piece of work."""
        kind = sorter.kind(work)
        self.coverage.add(work.start, work.end, kind)
        place = (work.process, work.device, work.context, work.stream)
        if place not in self.by_stream:
            self.by_stream[place] = ([Union() for _ in KINDS], [0] * len(KINDS))
        unions, counts = self.by_stream[place]
        unions[kind].add(work.start, work.end)
        counts[kind] += 1
        if sorter.packs(work):
            for alternation in (self.communication, self.transfers):
                alternation.pack(work.view, work.what, work.start, work.end, place, sorter.name(work))
        elif kind == COMMUNICATION:
            self.communication.transfer(work.start, work.end, place, sorter.name(work))
        elif kind == COPIES:
            self.transfers.transfer(work.start, work.end, place, sorter.name(work))

    @staticmethod
    def exposed(time: dict[int, int], *kinds: int) -> int:
        """Nanoseconds in which at least one of `kinds` ran, and neither compute nor a whole graph did."""
        wanted, hidden = sum(1 << kind for kind in kinds), 1 << COMPUTE | 1 << GRAPHS
        return sum(spent for mask, spent in time.items() if mask & wanted and not mask & hidden)
