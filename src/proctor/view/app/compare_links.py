"""Addresses of comparisons: which sides, what they are judged by, which of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from proctor.paired.comparing import Wish
from proctor.rows import UserError
from proctor.view.app.links import Address, number
from proctor.view.browse.compare import MOST_SIDES, SHOWS, Show, Wanted

DEFAULT_SIZE = 25
MOST_SIZE = 100
_LONGEST_SIDE = 2_000


class SideName(NamedTuple):
    """A side as an address names it: ``OPENED/PATH:CHECKPOINT``. No checkpoint is the last one of the run."""

    opened: str
    path: str
    checkpoint: str = ""

    @classmethod
    def of(cls, text: str) -> SideName:
        """What the text of an address says. Names of checkpoints have neither ``/`` nor ``:``."""
        place, colon, checkpoint = text[:_LONGEST_SIDE].rpartition(":")
        if not colon or "/" in checkpoint:
            place, checkpoint = text[:_LONGEST_SIDE], ""
        opened, _, path = place.partition("/")
        return cls(opened, path, checkpoint)

    @property
    def text(self) -> str:
        """What an address says."""
        return f"{self.opened}/{self.path}:{self.checkpoint}" if self.path else f"{self.opened}:{self.checkpoint}"

    @property
    def run(self) -> Address:
        """The address of its run."""
        return Address(self.opened, self.path)


@dataclass(frozen=True, slots=True)
class Compared:
    """What an address of a comparison says.

    Attributes:
        sides: the first is the one that the others are compared with.
        by: what pairs rows.
        metric: what rows are judged by; empty for the task's headline.
        strict: whether rows without a score count as wrong.
        wanted: which rows.
    """

    sides: tuple[SideName, ...]
    by: Literal["row-id", "sample-id"] = "row-id"
    metric: str = ""
    strict: bool = False
    wanted: Wanted = field(default_factory=Wanted)
    size: int = DEFAULT_SIZE

    @classmethod
    def of(cls, given: QueryParams) -> Compared:
        """What the parameters of a request say. A side that is named twice is there once.

        Raises:
            UserError: one is none.
        """
        sides = tuple(dict.fromkeys(SideName.of(text) for text in given.getlist("side") if text))
        if len(sides) > MOST_SIDES:
            raise UserError(f"at most {MOST_SIDES} sides are compared, not {len(sides)}", where="address")
        show: Show = next((known for known in SHOWS if known == given.get("show", "")), "changed")
        return cls(
            sides,
            "sample-id" if given.get("by", "") == "sample-id" else "row-id",
            given.get("metric", ""),
            given.get("strict", "") == "yes",
            Wanted(show, given.get("filter", "").replace("\r\n", "\n")),
            max(1, min(number(given, "size", DEFAULT_SIZE), MOST_SIZE)),
        )

    @property
    def wish(self) -> Wish:
        """How its sides are compared."""
        return Wish(by=self.by, metric=self.metric or None, strict=self.strict, limit=0)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Its parameters; what goes without saying is left out."""
        pairs = {
            "by": self.by if self.by != "row-id" else "",
            "metric": self.metric,
            "strict": "yes" if self.strict else "",
            "show": self.wanted.show if self.wanted.show != "changed" else "",
            "filter": self.wanted.filter,
            "size": str(self.size) if self.size != DEFAULT_SIZE else "",
        }
        sides = [("side", side.text) for side in self.sides]
        return sides + [(name, value) for name, value in pairs.items() if value]

    def to(self, page: str = "compare", **more: Any) -> str:
        """The address of ``/page`` for the same rows."""
        return f"/{page}?{urlencode([*self.pairs, *more.items()], errors='replace')}"

    def with_sides(self, sides: Sequence[SideName]) -> str:
        """The address of a comparison of other sides, by the same rules. Its filter, which names sides, is gone."""
        return replace(self, sides=tuple(sides), wanted=Wanted(self.wanted.show)).to()

    def showing(self, show: Show) -> str:
        """The address of other rows."""
        return replace(self, wanted=Wanted(show, self.wanted.filter)).to()

    def filtered(self, text: str) -> str:
        """The address of the rows of another filter."""
        return replace(self, wanted=Wanted(self.wanted.show, text)).to()

    def judged_by(self, metric: str) -> str:
        """The address of the same sides, judged by another metric."""
        return replace(self, metric=metric).to()

    def counting(self, *, strict: bool) -> str:
        """The address of the same sides, with rows without a score as wrong, or left out."""
        return replace(self, strict=strict).to()

    def paired_by(self, by: Literal["row-id", "sample-id"]) -> str:
        """The address of the same sides, paired otherwise."""
        return replace(self, by=by).to()

    def first(self, place: int) -> str:
        """The address of the same sides, compared with the one at `place`."""
        return self.with_sides([self.sides[place], *self.sides[:place], *self.sides[place + 1 :]])

    def earlier(self, place: int) -> str:
        """The address of the same sides, the one at `place` one further to the left."""
        sides = list(self.sides)
        sides[place - 1], sides[place] = sides[place], sides[place - 1]
        return self.with_sides(sides)

    def without(self, place: int) -> str:
        """The address of the sides but for the one at `place`."""
        return self.with_sides([side for at, side in enumerate(self.sides) if at != place])

    def at_checkpoint(self, place: int, checkpoint: str) -> str:
        """The address with another checkpoint of the same run at `place`."""
        sides = list(self.sides)
        sides[place] = sides[place]._replace(checkpoint=checkpoint)
        return self.with_sides(sides)

    def adding(self, side: SideName) -> str:
        """The address with one side more."""
        return self.with_sides([*self.sides, side])
