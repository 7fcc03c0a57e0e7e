"""Stored audits, read within bounds, for a page and for a line of a list."""

from __future__ import annotations

import tempfile
from glob import escape

import duckdb
import msgspec

from proctor.audit.conduct import Audit
from proctor.audit.store import ANSWERS, AUDIT, audit_of
from proctor.rows import UserError
from proctor.storage.folder import Folder
from proctor.view.browse.places import check_own
from proctor.view.browse.rows.database import confined

MOST_BYTES = 32 << 20
"""Largest ``audit.json`` that is shown; that of a hundred arms over a hundred rows has some megabytes."""
MOST_ARMS = 2_000
_MOST_ANSWERS = 256 << 20


class _Verdict(msgspec.Struct):
    kind: str
    sentence: str
    nature: str = ""


class AuditBrief(msgspec.Struct):
    """What a list says of an audit; the rest of the file is passed over."""

    checkpoint: str
    verdict: _Verdict


def open_audit(folder: Folder) -> Audit:
    """The audit in a folder.

    Raises:
        UserError: there is none; it is damaged, too large to be shown, or behind a symbolic link.
        OSError: storage failed.
    """
    where = f"{folder.location}/{AUDIT}"
    audit = audit_of(_content(folder), where)
    if len(audit.arms) > MOST_ARMS:
        raise UserError(f"too many arms to be shown: {len(audit.arms):,}", where=where)
    return audit


def audit_brief(folder: Folder) -> AuditBrief:
    """The verdict of the audit in a folder.

    Raises:
        UserError, OSError: as `open_audit`.
    """
    try:
        return msgspec.json.decode(_content(folder), type=AuditBrief)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UserError("not an audit that this version reads", where=f"{folder.location}/{AUDIT}") from error


def longest_answer(folder: Folder) -> int:
    """Tokens of the longest stored answer, read with little memory; 0 where that is not known."""
    try:
        check_own(folder, [ANSWERS], _MOST_ANSWERS)
        (path,) = folder.local_copies([ANSWERS])
        with (
            tempfile.TemporaryDirectory(prefix="proctor-view-") as scratch,
            duckdb.connect(config=confined(scratch)) as base,
        ):
            base.execute("select coalesce(max(len(token_ids)), 0) from read_parquet(?)", [escape(str(path))])
            return int(base.fetchall()[0][0])
    except (OSError, UserError, duckdb.Error, ValueError):
        return 0


def _content(folder: Folder) -> bytes:
    check_own(folder, [AUDIT], MOST_BYTES)
    try:
        return folder.read(AUDIT)
    except FileNotFoundError as error:
        raise UserError(f"no audit here (no {AUDIT})", where=folder.location) from error
