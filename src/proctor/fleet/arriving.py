"""Checkpoints that come to a directory while a fleet watches it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from proctor.fleet.finding import Look, find
from proctor.fleet.folder import Fleet, FleetDir
from proctor.fleet.resubmit import extend, preview
from proctor.rows import UserError
from proctor.spec import Checkpoint
from proctor.spec.fleet import FleetSpec


class Arrivals:
    """Takes what has come into the fleet's record. One that the fleet cannot take keeps no other one out.

    Args:
        place: the fleet directory.
        refused: is told of each checkpoint that cannot be taken, once, and why.
    """

    def __init__(self, place: FleetDir, refused: Callable[[Checkpoint, str], None]) -> None:
        self._place, self._tell = place, refused
        self._looks: Mapping[str, Look] = {}
        self._refused: set[str] = set()
        self._spec: FleetSpec | None = None

    def take(self, fleet: Fleet) -> None:
        """Looks once; a checkpoint that the fleet has, or has refused, is not looked at again.

        Raises:
            UserError: the directory cannot be read now.
            OSError: the fleet directory cannot be written.
        """
        if fleet.spec != self._spec:  # what was refused may have a place now
            self._spec = fleet.spec
            self._refused.clear()
        known = {one.path for batch in fleet.batches for one in batch} | self._refused
        found = find(fleet.spec, self._looks, known)
        self._looks = found.looks
        if not found.checkpoints:
            return
        try:
            extend(self._place, found.checkpoints)
        except UserError:
            if taken := self._taken(fleet.spec, found.checkpoints, []):
                extend(self._place, taken)

    def _taken(
        self, spec: FleetSpec, found: Sequence[Checkpoint], before: Sequence[Checkpoint]
    ) -> Sequence[Checkpoint]:
        """`before` and those of `found` that the fleet can take with them; found by halves, since each try expands the
        whole fleet."""
        together = [*before, *found]
        try:
            preview(self._place, spec, together)
        except UserError as error:
            if len(found) == 1:
                self._tell(found[0], str(error))
                self._refused.add(found[0].path)
                return before
            half = len(found) // 2
            return self._taken(spec, found[half:], self._taken(spec, found[:half], before))
        return together
