"""The page of an audit: one HTML file, like a run's report (see `proctor.view.report`)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from proctor.audit.conduct import Audit
from proctor.audit.places import audit_folder, local_audit
from proctor.audit.store import ANSWERS, REPORT, read_audit
from proctor.results.files import write_text
from proctor.rows import UserError
from proctor.storage.folder import Place
from proctor.view.audit_view import gather
from proctor.view.pages import page


def write_audit_page(place: Place) -> str:
    """Writes ``audit.html`` beside a stored audit, whole or not at all, and returns its path or URL.

    Args:
        place: directory or URL of the audit, or of a run directory that holds one.

    Raises:
        UserError: there is none, another version of Proctor wrote it, or the page cannot be written there.
    """
    folder = audit_folder(place)
    files = local_audit(folder)
    html, where = render_audit(read_audit(files), longest=longest_answer(files)), f"{folder.location}/{REPORT}"
    try:
        write_text(folder, REPORT, html)
    except OSError as error:
        fix = f"`proctor audit show {folder.location}` writes it again"
        raise UserError(f"the page cannot be written: {error.strerror or error}", where=where, fix=fix) from error
    return where


def render_audit(audit: Audit, *, longest: int = 0) -> str:
    """The page.

    Args:
        audit: what was found.
        longest: tokens of the longest answer, up to which curves are drawn.
    """
    return page("audit.html.j2", "style.css", "audit.css", view=gather(audit, longest))


def longest_answer(folder: Path) -> int:
    """Tokens of the longest stored answer; 0 where that is not known."""
    try:
        lengths = pc.list_value_length(pq.read_table(folder / ANSWERS, columns=["token_ids"])["token_ids"])
        return int(pc.max(lengths).as_py() or 0)
    except (OSError, pa.ArrowException):
        return 0
