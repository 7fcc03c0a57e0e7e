"""Which stage a row was in when its worker died: pure logic.

A row that kills its worker takes the worker's word along. So whoever works on a row that stands alone in its block says
so before and after; who went in and never came out died in there. A row is guilty when that happened to it twice.
"""

from __future__ import annotations

from proctor.rows import ErrorKind

DEATHS_TO_CONVICT = 2
CRASHES = {
    "read": ErrorKind.READ_CRASHED,
    "prepare": ErrorKind.PREPARE_CRASHED,
    "score": ErrorKind.SCORE_CRASHED,
}
"""The stages outside of the engine, in the order in which a row passes them, and what a row is that kills one."""
_ORDER = list(CRASHES)


class Trail:
    """Where lone rows are, and where they were when their workers died."""

    def __init__(self) -> None:
        self._inside: dict[int, str] = {}
        self._deaths: dict[int, list[str]] = {}

    def enter(self, row: int, stage: str) -> None:
        """The row enters a stage. If it is said to be there, or further on, then that worker is dead."""
        before = self._inside.get(row)
        if before is not None and _ORDER.index(stage) <= _ORDER.index(before):
            self._died(row, before)
        self._inside[row] = stage

    def leave(self, row: int) -> None:
        """The row has left its stage."""
        self._inside.pop(row, None)

    def close(self, *, ended: bool) -> dict[int, list[str]]:
        """The sweep is over; nobody is inside any more.

        Args:
            ended: whether it came to its end. If it was cut short, who is inside was merely interrupted.

        Returns:
            The stages that killed each guilty row's workers, in order. Deaths of earlier sweeps count.
        """
        if ended:
            for row, stage in self._inside.items():
                self._died(row, stage)
        self._inside.clear()
        return {row: stages for row, stages in self._deaths.items() if len(stages) >= DEATHS_TO_CONVICT}

    def _died(self, row: int, stage: str) -> None:
        self._deaths.setdefault(row, []).append(stage)
