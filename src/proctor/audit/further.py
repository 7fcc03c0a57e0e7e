"""Arms beyond the design, within a limit: the search asks for them, and what it may not have is kept."""

from __future__ import annotations

from proctor.audit.design import name_of
from proctor.audit.lab import Lab
from proctor.audit.model import BASELINE, Arm, Layer
from proctor.engines.knobs import Value

LIMIT = "the limit on further sittings was reached"


class Further:
    """Runs further arms.

    Args:
        lab: where they sit.
        rounds: of each.
        most_sittings: limit on all of them together, their references included.
    """

    def __init__(self, lab: Lab, *, rounds: int, most_sittings: int) -> None:
        self._lab, self._rounds, self._left = lab, rounds, most_sittings
        self.not_tried: list[tuple[str, str]] = []

    def arm(self, changes: dict[str, Value], against: str = BASELINE, layer: Layer = "engine") -> Arm:
        """The arm with these changes, the known one if there is one."""
        name = name_of(changes)
        return self._lab.arms.get(name) or Arm(name=name, changes=changes, against=against, layer=layer)

    def sit(self, *arms: Arm, rounds: int | None = None) -> bool:
        """Runs those of the arms that have not sat yet, each beside its reference; False if the limit forbids it.

        Args:
            arms: wanted.
            rounds: of each, if fewer than usual are enough.
        """
        new = [arm for arm in arms if not self._lab.has_sat(arm.name)]
        rounds = self._rounds if rounds is None else rounds
        needed = 2 * rounds * len(new)
        if needed > self._left:
            self.not_tried += [(arm.name, LIMIT) for arm in new]
            return False
        self._left -= needed
        for arm in new:
            self._lab.arms.setdefault(arm.name, arm)
        if new:
            self._lab.again(new, rounds)
        return True
