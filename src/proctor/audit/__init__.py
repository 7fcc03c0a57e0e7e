"""The audit: does the same question get the same answer, and if not, which knob changed it?"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proctor.audit.conduct import Audit, Auditor, Preparation
    from proctor.audit.diff import AuditDiff, diff_audits
    from proctor.audit.lab import Lab
    from proctor.audit.model import Arm, Comparison, Design, Fingerprint, Observation, Rate, Threshold, Verdict
    from proctor.audit.store import read_answers, read_audit, write_audit

_HOMES = {
    "Arm": "model",
    "Audit": "conduct",
    "AuditDiff": "diff",
    "Auditor": "conduct",
    "Comparison": "model",
    "Design": "model",
    "Fingerprint": "model",
    "Lab": "lab",
    "Observation": "model",
    "Preparation": "conduct",
    "Rate": "model",
    "Threshold": "model",
    "Verdict": "model",
    "diff_audits": "diff",
    "read_answers": "store",
    "read_audit": "store",
    "write_audit": "store",
}

__all__ = [
    "Arm",
    "Audit",
    "AuditDiff",
    "Auditor",
    "Comparison",
    "Design",
    "Fingerprint",
    "Lab",
    "Observation",
    "Preparation",
    "Rate",
    "Threshold",
    "Verdict",
    "diff_audits",
    "read_answers",
    "read_audit",
    "write_audit",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'proctor.audit' has no attribute {name!r}")
    return getattr(import_module(f"proctor.audit.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
