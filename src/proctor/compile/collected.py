"""Pieces of several processes put together: at any time, everything that was measured so far."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from proctor.compile.model import (
    Agreement,
    Compilation,
    Dispatch,
    Measured,
    ProbeAnswers,
    Shape,
    Timing,
)
from proctor.compile.orders import Explained, Piece


class Collected:
    """What processes have told."""

    def __init__(self, subject: dict[str, Any] | None = None, rows: int | None = None) -> None:
        self.subject: dict[str, Any] = dict(subject or {})
        self.rows = rows
        self.looks = 1
        self.targets: dict[str, int] = {}
        self.shapes: tuple[Shape, ...] = ()
        self.explained: list[Explained] = []
        self._timings: list[Timing] = []
        self._compilations: dict[tuple[str, int], Compilation] = {}
        self._dispatches: list[Dispatch] = []
        self._agreements: list[Agreement] = []
        self._answers: list[ProbeAnswers] = []
        self._notes: dict[str, None] = {}

    @property
    def anything(self) -> bool:
        """Whether anything was timed in a round that counts."""
        return any(timing.round >= 0 for timing in self._timings)

    def add(self, piece: Piece) -> None:
        """Takes in a piece; a compilation that comes again replaces the earlier one."""
        self.subject.update(piece.subject)
        self.targets = piece.targets or self.targets
        self.shapes = piece.shapes or self.shapes
        self.explained += piece.explained
        self._timings += piece.timings
        self._compilations.update({(one.target, one.process): one for one in piece.compilations})
        self._dispatches += piece.dispatches
        self._agreements += piece.agreements
        self._answers += piece.answers
        self.note(piece.notes)

    def note(self, lines: Iterable[str]) -> None:
        """Adds lines, each once."""
        self._notes.update(dict.fromkeys(lines))

    def measured(self) -> Measured:
        """Everything so far."""
        return Measured(
            subject=self.subject,
            targets=self.targets,
            shapes=self.shapes,
            timings=tuple(self._timings),
            compilations=tuple(self._compilations.values()),
            dispatches=tuple(self._dispatches),
            agreements=tuple(self._agreements),
            answers=tuple(self._answers),
            rows=self.rows,
            looks=self.looks,
            notes=tuple(self._notes),
        )
