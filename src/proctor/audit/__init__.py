"""The audit: does the same question get the same answer, and if not, which knob changed it?"""

from __future__ import annotations
