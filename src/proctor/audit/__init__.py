"""The audit: does the same question get the same answer, and if not, which knob changed it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor._lazy import lazy

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

__getattr__, __dir__ = lazy(__name__, _HOMES)
