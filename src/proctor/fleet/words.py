"""Names of what happens to a fleet: the kinds of lines in its ``events.jsonl``, and what they carry.

An event of a unit is ``Event(kind, message=..., data={"unit": NAME, "attempt": N, ...})``; attempts count from 1.
"""

from __future__ import annotations

from typing import Final

FLEET_CREATED: Final = "fleet.created"
FLEET_EXTENDED: Final = "fleet.extended"
"""Units were added."""
FLEET_ENDED: Final = "fleet.ended"
"""Every unit has its last word, or is held back by a person."""

UNIT_ADMITTED: Final = "unit.admitted"
"""Written before the job is submitted: its GPUs are this unit's from here on."""
UNIT_STARTED: Final = "unit.started"
UNIT_STOPPING: Final = "unit.stopping"
UNIT_KILLED: Final = "unit.killed"
UNIT_STUCK: Final = "unit.stuck"
"""Its driver cannot be ended from here: a person has to."""
UNIT_GONE: Final = "unit.gone"
"""Its job and its processes are gone; its GPUs are free. ``data.counts`` is False if the cluster interrupted it."""
UNIT_REQUEUED: Final = "unit.requeued"
UNIT_GIVEN_UP: Final = "unit.given_up"
UNIT_ENDED: Final = "unit.ended"
"""Its run came to an end by itself; ``data.exit_code`` is the run's."""
UNIT_ADOPTED: Final = "unit.adopted"
"""A new watcher found it at work."""

CHECKPOINT_REFUSED: Final = "checkpoint.refused"
"""It has come to the watched directory, and the fleet cannot take it."""

WATCHER_STARTED: Final = "watcher.started"
WATCHER_STOPPED: Final = "watcher.stopped"
CLUSTER_LOST: Final = "cluster.lost"
CLUSTER_BACK: Final = "cluster.back"

FREEING: Final = frozenset({UNIT_GONE, UNIT_ENDED, UNIT_REQUEUED, UNIT_GIVEN_UP})
"""After one of these a unit's attempt holds no GPUs any more."""
