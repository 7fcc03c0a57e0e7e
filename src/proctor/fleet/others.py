"""GPUs of a cluster that somebody else uses."""

from __future__ import annotations

from collections.abc import Mapping

_LOADING_SECONDS = 600.0
"""A driver of ours may take so long until its engines hold their GPUs."""
_LEAVING_SECONDS = 60.0
"""Ray may count GPUs as handed out for so long after a driver of ours has gone."""


class Others:
    """Tells GPUs of others from our own among those that Ray has handed out, which it does not tell by their jobs.

    What is not ours is somebody else's. But a driver that has just begun holds none yet, and would hide as many of
    others: so long, what they were seen to use before counts on, as far as it is still handed out to anybody.
    """

    def __init__(self) -> None:
        self._before = 0.0
        self._since: dict[str, float] | None = None
        self._ours: dict[str, float] = {}
        self._left: dict[str, float] = {}

    def of(self, used: float, ours: Mapping[str, float], now: float) -> float:
        """GPUs of others.

        Args:
            used: GPUs that Ray has handed out.
            ours: GPUs of each unit whose driver is at work.
            now: by a clock that never jumps. Drivers at work at the first look are taken to have begun long before.
        """
        before = dict.fromkeys(ours, float("-inf")) if self._since is None else self._since
        self._since = {unit: before.get(unit, now) for unit in ours}
        self._left |= dict.fromkeys(before.keys() - ours.keys(), now)
        self._left = {unit: then for unit, then in self._left.items() if now - then < _LEAVING_SECONDS}
        self._ours = {**self._ours, **ours}
        leaving = sum(self._ours[unit] for unit in self._left.keys() - ours.keys())
        not_ours = max(0.0, used - sum(ours.values()))
        sure = max(0.0, not_ours - leaving)
        loading = any(now - since < _LOADING_SECONDS for since in self._since.values())
        self._before = max(sure, min(self._before, used)) if loading else sure
        return max(not_ours, self._before)
