"""Planted numerics in a real child: hand-outs arrive whole, knobs are turned from outside, a fresh process forgets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from proctor.engines.base import EngineConfig
from proctor.engines.knobs import knobs_of, turned
from proctor.rows import Request, Response
from tests.engines.planted import alone, asked, differing, planted
from tests.supervise.helpers import Supervised

ROWS = asked(range(24))
KNOB = {"name": "SPLIT", "env": True, "default": True, "values": [False]}


class Sitting:
    """A supervised engine that is asked in hand-outs, each answered before the next one."""

    def __init__(self, config: EngineConfig, directory: Path, **settings: Any) -> None:
        self._supervised = Supervised(config, directory, **settings)

    def __enter__(self) -> Sitting:
        return self

    def __exit__(self, *_: object) -> None:
        self._supervised.supervisor.close()

    def told(self, *hand_outs: Sequence[Request]) -> list[Response]:
        found: list[Response] = []
        for hand_out in hand_outs:
            futures = self._supervised.supervisor.submit_together(hand_out)
            found += [replace(future.result(20), latency_s=None) for future in futures]
        return found


def test_a_hand_out_is_one_batch(tmp_path: Path) -> None:
    config = planted({"batch": 8, "ulps": 4.0})
    expected = alone(config, ROWS)
    with Sitting(config, tmp_path) as sitting:
        assert sitting.told(*([row] for row in ROWS)) == expected
        assert sitting.told(ROWS[:7], ROWS[7:14], ROWS[14:21], ROWS[21:]) == expected
        assert len(differing(sitting.told(ROWS[:8], ROWS[8:16], ROWS[16:]), expected)) == 24


def test_a_smaller_batch_size_keeps_an_effect_away(tmp_path: Path) -> None:
    config = planted({"batch": 8, "ulps": 4.0}, batch_size=7)
    with Sitting(config, tmp_path) as sitting:
        assert sitting.told(ROWS) == alone(config, ROWS)


def test_a_planted_knob_in_the_environment_reaches_the_child(tmp_path: Path) -> None:
    config = planted({"ulps": 4.0, "batch": 2, "knobs": {"SPLIT": True}}, knobs=[KNOB])
    (knob, *_) = knobs_of(config, {})
    assert (knob.name, knob.place, knob.baseline, knob.values) == ("SPLIT", "env", True, (False,))
    expected = alone(config, ROWS)
    for value, hit in ((True, 24), (False, 0)):
        changed, env = turned(config, {}, knob, value)
        with Sitting(changed, tmp_path, env=env) as sitting:
            assert len(differing(sitting.told(ROWS), expected)) == hit


def test_a_fresh_process_is_cold_again(tmp_path: Path) -> None:
    config = planted({"warm": 3, "ulps": 4.0})
    with Sitting(config, tmp_path) as sitting:
        cold, warm = sitting.told(ROWS), sitting.told(ROWS)
    with Sitting(config, tmp_path) as sitting:
        assert sitting.told(ROWS) == cold
    assert len(differing(warm, cold)) == 24
