from __future__ import annotations

import math
import threading
import time
from dataclasses import replace

import pytest

from proctor.runner.course import Swept
from proctor.runner.hub import HubView, Pulse
from proctor.runner.stoppable import Stoppable, Stopped
from proctor.runner.watch import Sight, judge
from proctor.spec import LimitsSpec

LIMITS = LimitsSpec(stall_seconds=10, min_rows=100, max_error_rate=0.1, on_error_rate="stop")
WORKING = Sight(5.0, HubView({}, {}, {"a": Pulse(1.0, 256), "b": Pulse(1.0, 0)}), 90, 5)


def test_a_sweep_that_moves_goes_on() -> None:
    assert judge(WORKING, LIMITS, 2) is None


def test_long_silence_with_an_engine_at_work_is_its_supervisors_affair() -> None:
    assert judge(replace(WORKING, silent=9999.0), LIMITS, 2) is None


def test_too_many_errors_stop_it_once_there_are_enough_rows() -> None:
    assert judge(replace(WORKING, answered=50, errors=49), LIMITS, 2) is None
    assert judge(replace(WORKING, answered=180, errors=20), LIMITS, 2) is None
    verdict = judge(replace(WORKING, answered=179, errors=21), LIMITS, 2)
    assert verdict is not None
    assert verdict.swept == Swept(halted=True)
    assert verdict.reason == (
        "stopped by limits.on_error_rate: 21 of 200 rows ended in an error (10.5%, limits.max_error_rate is 10.0%)"
    )
    going_on = LIMITS.model_copy(update={"on_error_rate": "continue"})
    assert judge(replace(WORKING, answered=0, errors=5000), going_on, 2) is None


def test_every_engine_out_of_order_ends_it_at_once() -> None:
    one = WORKING.hub._replace(broken={"a": "no memory"})
    assert judge(replace(WORKING, hub=one), LIMITS, 2) is None
    both = WORKING.hub._replace(broken={"a": "no memory", "b": "no memory"})
    verdict = judge(replace(WORKING, hub=both), LIMITS, 2)
    assert verdict == ("the engine was given up: no memory", Swept(halted=True))


def test_an_engine_that_was_never_placed_is_not_waited_for_for_ever() -> None:
    hub = HubView({}, {"a": "no memory"}, {"a": Pulse(1.0, 8)})
    assert judge(Sight(30.0, hub, 0, 0), LIMITS, 2) is None
    assert judge(Sight(61.0, hub, 0, 0), LIMITS, 2) == ("the engine was given up: no memory", Swept(halted=True))


def test_rows_with_an_engine_that_is_gone_are_fetched_back() -> None:
    gone = HubView({}, {}, {"a": Pulse(90.0, 256), "b": Pulse(1.0, 0)})
    assert judge(Sight(70.0, gone, 0, 0), LIMITS, 2) == ("a: no word for 60 s", Swept(failed=True))
    assert judge(Sight(30.0, gone, 0, 0), LIMITS, 2) is None
    other_at_work = gone._replace(pulses={**gone.pulses, "b": Pulse(1.0, 8)})
    assert judge(Sight(70.0, other_at_work, 0, 0), LIMITS, 2) is None


def test_idle_engines_and_nothing_coming_means_stuck_readers() -> None:
    idle = HubView({}, {}, {"a": Pulse(1.0, 0)}, still=110.0)
    assert judge(Sight(109.0, idle, 0, 0), LIMITS, 1) is None
    assert judge(Sight(500.0, idle._replace(still=109.0), 0, 0), LIMITS, 1) is None, "rows went through an engine"
    verdict = judge(Sight(110.0, idle, 0, 0), LIMITS, 1)
    assert verdict is not None
    assert (verdict.reason, verdict.swept) == (
        "nothing has moved for 110 s: rows are stuck in reading, preparing or marking",
        Swept(),
    )
    assert judge(Sight(9999.0, HubView({}, {}, {}), 0, 0), LIMITS, 1) is None, "no engine yet: Ray looks for room"


def test_engines_that_crowd_readers_out_of_a_smaller_cluster_give_way() -> None:
    idle = HubView({}, {}, {"a": Pulse(1.0, 0), "b": Pulse(1.0, 0)}, still=61.0)
    assert judge(Sight(61.0, idle, 0, 0, room=2), LIMITS, 2) is None
    verdict = judge(Sight(61.0, idle, 0, 0, room=1), LIMITS, 2)
    assert verdict == ("the cluster has shrunk: 2 engines leave no room for readers", Swept(failed=True))
    busy = idle._replace(pulses={"a": Pulse(1.0, 8)})
    assert judge(Sight(61.0, busy, 0, 0, room=1), LIMITS, 2) is None


def test_another_thread_ends_a_block_that_waits() -> None:
    block = Stoppable()
    threading.Timer(0.05, block.stop, ("enough",)).start()
    with pytest.raises(Stopped):
        wait_inside(block)
    assert block.reason == "enough"


def wait_inside(block: Stoppable) -> None:
    with block:
        while True:
            time.sleep(0.01)


def test_a_block_that_is_over_cannot_be_ended() -> None:
    with Stoppable() as block:
        pass
    block.stop("late")
    time.sleep(0.02)
    assert block.reason is None


def test_an_end_that_comes_with_the_blocks_own_does_not_arrive_later() -> None:
    ended = told = 0
    for turn in range(200):
        block = Stoppable()
        thread = threading.Thread(target=block.stop, args=("race",))
        try:
            with block:
                thread.start()
                for _ in range(turn):
                    math.sqrt(turn)
        except Stopped:
            ended += 1
        thread.join()
        told += block.reason == "race"
    time.sleep(0.05)  # nothing is still on its way
    assert ended <= told
