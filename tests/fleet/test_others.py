from __future__ import annotations

from proctor.fleet.others import Others


def test_a_driver_that_has_just_begun_hides_nobody_elses_gpus() -> None:
    others = Others()
    assert others.of(6.0, {}, 0.0) == 6.0
    assert others.of(6.0, {"a": 6.0}, 10.0) == 6.0  # its engines load
    assert others.of(12.0, {"a": 6.0}, 100.0) == 6.0
    assert others.of(8.0, {"a": 6.0}, 200.0) == 6.0  # somebody has left, and it cannot be seen who
    assert others.of(8.0, {"a": 6.0}, 611.0) == 2.0  # now it can
    assert others.of(0.0, {}, 620.0) == 0.0


def test_a_cluster_of_our_own_is_used_at_once() -> None:
    others = Others()
    assert others.of(0.0, {}, 0.0) == 0.0
    for second, used in enumerate((0.0, 0.0, 6.0, 12.0)):
        assert others.of(used, {"a": 6.0, "b": 6.0}, float(second)) == 0.0


def test_what_is_at_work_at_the_first_look_has_its_gpus() -> None:
    others = Others()
    assert others.of(9.0, {"a": 6.0}, 5.0) == 3.0
    assert others.of(6.0, {"a": 6.0}, 6.0) == 0.0


def test_what_leaves_is_not_taken_for_somebody_elses_while_another_one_loads() -> None:
    others = Others()
    others.of(6.0, {"a": 6.0}, 0.0)
    assert others.of(6.0, {"a": 6.0, "b": 6.0}, 100.0) == 0.0
    assert others.of(6.0, {"b": 6.0}, 200.0) == 0.0  # handed out to `a`, which has gone, or to `b`
    assert others.of(12.0, {"b": 6.0}, 205.0) == 6.0  # `a` has still not let go
    assert others.of(6.0, {"b": 6.0}, 210.0) == 0.0
    assert others.of(12.0, {"b": 6.0}, 280.0) == 6.0  # so late it is somebody else
    assert others.of(6.0, {"b": 6.0, "c": 6.0}, 290.0) == 6.0
