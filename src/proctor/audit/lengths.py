"""How long the prompts of an arm are, in tokens: the longest, and those that an engine works on together."""

from __future__ import annotations

from collections.abc import Callable

from proctor.audit.lab import Lab
from proctor.audit.traffic import waves


def longest_prompt(lab: Lab, arm: str) -> int | None:
    """Tokens of the longest prompt of an arm; None where the engine is silent."""
    return max(_lengths(lab, arm).values(), default=None)


def most_together(lab: Lab, arm: str) -> int | None:
    """Tokens of the prompts of the largest wave of an arm, neighbours included; None where the engine is silent."""
    lengths = _lengths(lab, arm)
    setting = lab.setting
    requests = [probe.request for probe in setting.probes]
    made = waves(requests, lab.arms[arm].changes, setting.seed, setting.top)
    # A neighbour has the prompt of a row, and another id.
    known = {(asked.request.prompt, asked.request.images): lengths.get(asked.request.id)
             for wave in made for asked in wave if asked.probe}  # fmt: skip
    totals = [[known.get((asked.request.prompt, asked.request.images)) for asked in wave] for wave in made]
    return max((sum(filter(None, total)) for total in totals if None not in total), default=None)


def spanned(length: Callable[[Lab, str], int | None], lab: Lab, below: str, above: str) -> tuple[int, int] | None:
    """A length at two arms; None where the engine does not say it at either."""
    lengths = length(lab, below), length(lab, above)
    return None if lengths[0] is None or lengths[1] is None else (lengths[0], lengths[1])


def _lengths(lab: Lab, arm: str) -> dict[int, int]:
    """Tokens of each row's prompt, where the engine says."""
    seen = lab.observations(arm) if lab.has_sat(arm) else []
    return {one.row_id: one.prompt_tokens for one in seen if one.prompt_tokens is not None}
