"""Who is told when something happens to a fleet."""

from __future__ import annotations

from pydantic import Field

from proctor.spec.model import MOST, SpecModel


class NotifySpec(SpecModel):
    """A webhook that takes ``{"text": ...}``, as Slack's and Mattermost's do."""

    webhook_env: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Name of the environment variable that holds its URL, which is a secret: whoever knows it can write there."""
    events: list[str] = Field(
        default=[
            *("fleet.ended", "unit.stopping", "unit.killed", "unit.stuck", "unit.given_up"),
            *("checkpoint.refused", "cluster.*"),
        ],
        min_length=1,
    )
    """Kinds of events that are told; ``*`` stands for anything."""
    attempts: int = Field(default=5, ge=1, le=MOST)
    """How often a message is sent that did not arrive, with growing waits."""
    seconds: float = Field(default=10.0, gt=0, le=300)
    """Longest time for one try, from the first byte to the whole reply."""
