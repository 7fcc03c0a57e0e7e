"""An audit: the knobs that were turned, what they changed, and what that rests on."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from proctor.audit.places import FOLDER
from proctor.audit.store import AUDIT
from proctor.rows import UserError
from proctor.rows.text import told
from proctor.storage.folder import Folder
from proctor.view.app.links import Address
from proctor.view.app.site import Answer, Site
from proctor.view.audit_view import gather
from proctor.view.browse.audits import longest_answer, open_audit
from proctor.view.browse.runs import DAMAGE


def answers(site: Site) -> dict[str, Answer]:
    """What this room answers."""

    def audit(request: Request) -> Response:
        address = Address.of(request.query_params).place
        folder = _folder(site, address)
        try:
            view = gather(open_audit(folder), longest_answer(folder))
            return site.page("audits.html.j2", address=address, view=view)
        except DAMAGE as error:  # well-formed, and yet such as no audit writes
            raise UserError(f"this audit is damaged: {told(error)}", where=folder.location) from error

    return {"/audit": audit}


def _folder(site: Site, address: Address) -> Folder:
    """The folder of an audit: that of the address, or the one in the run of the address.

    Raises:
        UserError: it may not be read.
    """
    folder = site.folder(address)
    if folder.exists(AUDIT) or not folder.exists("spec.yaml"):
        return folder
    inner = f"{address.path}/{FOLDER}" if address.path else FOLDER
    return site.folder(Address(address.opened, inner))
