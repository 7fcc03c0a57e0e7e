"""Addresses of views: which run, which rows, in what order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from proctor.rows import UserError
from proctor.view.browse.rows import Query, Sort

DEFAULT_SIZE = 50
_LONGEST_LIST = 4_000


@dataclass(frozen=True, slots=True)
class Address:
    """What an address says.

    Attributes:
        opened: name of the opened directory.
        path: of the run below it.
        columns: to show, in order; none is for those that are shown unasked.
    """

    opened: str = ""
    path: str = ""
    query: Query = field(default_factory=Query)
    columns: tuple[str, ...] = ()
    size: int = DEFAULT_SIZE

    @classmethod
    def of(cls, given: QueryParams) -> Address:
        """What the parameters of a request say.

        Raises:
            UserError: one is none.
        """
        listed = [name for text in given.getlist("columns") for name in text[:_LONGEST_LIST].split(",")]
        return cls(
            given.get("in", ""),
            given.get("path", ""),
            Query(
                given.get("filter", "").replace("\r\n", "\n"),
                given.get("q", ""),
                Sort(given.get("sort", "") or "row_id", given.get("way", "") == "down"),
            ),
            tuple(dict.fromkeys(name for name in listed if name)),
            number(given, "size", DEFAULT_SIZE),
        )

    @property
    def pairs(self) -> dict[str, str]:
        """Its parameters; what goes without saying is left out."""
        pairs = {
            "in": self.opened,
            "path": self.path,
            "filter": self.query.filter,
            "q": self.query.search,
            "sort": self.query.sort.column if self.query.sort.column != "row_id" else "",
            "way": "down" if self.query.sort.descending else "",
            "columns": ",".join(self.columns),
            "size": str(self.size) if self.size != DEFAULT_SIZE else "",
        }
        return {name: value for name, value in pairs.items() if value}

    @property
    def place(self) -> Address:
        """The run, whatever its rows."""
        return Address(self.opened, self.path)

    def to(self, page: str, **more: Any) -> str:
        """The address of ``/page`` for the same rows."""
        return f"/{page}?{urlencode({**self.pairs, **more}, errors='replace')}"

    def run(self) -> str:
        """The address of the run."""
        return self.place.to("run")

    def image(self, row_id: int, place: int) -> str:
        """The address of an image of a row, counted from 0."""
        return self.place.to("image", row=row_id, n=place)

    def filtered(self, text: str) -> str:
        """The address of the rows of a filter, in the same columns."""
        return replace(self, query=Query(filter=text)).to("rows")

    def with_filter(self, text: str) -> str:
        """The address of the same view with another filter."""
        return replace(self, query=replace(self.query, filter=text)).to("rows")

    def sorted_by(self, column: str) -> str:
        """The address of the same rows sorted by a column; by the one they are sorted by, the other way round."""
        sort = self.query.sort
        turned = sort.column == column and not sort.descending
        return replace(self, query=replace(self.query, sort=Sort(column, turned))).to("rows")


def number(given: QueryParams, name: str, default: int | None = None) -> int:
    """A whole number of the parameters.

    Raises:
        UserError: there is none.
    """
    text = given.get(name, "")
    if not text and default is not None:
        return default
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise UserError(f"{name} is no whole number", where="address")
    return int(text)
