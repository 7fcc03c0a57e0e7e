"""What a user's surroundings may do to a run: watchers that fail, tasks that return junk, directories in use."""

from __future__ import annotations

import pytest

from proctor.api import run
from proctor.runner.progress import Progress
from tests.runner.helpers import MakeSpec

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("local_ray")]


def test_an_observer_that_fails_is_told_of_once_and_costs_nothing(make_spec: MakeSpec) -> None:
    def fail(progress: Progress) -> None:
        raise OSError("nobody is there")

    outcome = run(make_spec(20), observer=fail)
    assert outcome.exit_code == 0
    told = [event.message for event in outcome.run.events() if event.kind == "progress.failed"]
    assert told == ["OSError: nobody is there"]
