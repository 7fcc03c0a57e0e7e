"""A fleet: its cells as a matrix, its learning curves, its queue and what happened."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import Response

from proctor.fleet.cells import CELLS
from proctor.rows import UserError
from proctor.rows.text import told
from proctor.view.app.compare_links import SideName
from proctor.view.app.links import Address
from proctor.view.app.site import Answer, Site
from proctor.view.browse.filters import value_text
from proctor.view.browse.fleets.cells import CellReader
from proctor.view.browse.fleets.gather import gather
from proctor.view.browse.fleets.opening import open_fleet
from proctor.view.browse.marks import fleet_sight
from proctor.view.browse.runs import DAMAGE


class Links:
    """Where the cells of a fleet lead."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def unit(self, unit: str) -> Address:
        """The run of a unit."""
        path = "/".join(filter(None, (self._address.path, CELLS, unit)))
        return Address(self._address.opened, path)

    def rows(self, unit: str, checkpoint: str, question: str = "") -> str:
        """The address of a cell's rows, or of those to which a question says yes."""
        own = f"checkpoint = {value_text(checkpoint)}"
        return self.unit(unit).filtered(f"{own} and {question}" if question else own)

    def side(self, unit: str, checkpoint: str) -> str:
        """What stands for a cell in the address of a comparison."""
        address = self.unit(unit)
        return SideName(address.opened, address.path, checkpoint).text


def answers(site: Site) -> dict[str, Answer]:
    """What this room answers."""
    site.looks["fleet"] = lambda address: fleet_sight(site.folder(address))
    reader = CellReader()

    def fleet(request: Request) -> Response:
        address = Address.of(request.query_params).place
        folder = site.folder(address)
        try:
            seen = open_fleet(folder)
            live = site.following("fleet", address)
            view = gather(seen, reader.standings(seen), time.time())
            return site.page("fleets.html.j2", address=address, links=Links(address), live=live, view=view)
        except DAMAGE as error:  # well-formed, and yet such as no fleet writes
            raise UserError(f"a file of this fleet is damaged: {told(error)}", where=folder.location) from error

    return {"/fleet": fleet}
