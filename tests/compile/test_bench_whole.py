"""Whole engines against each other: never a result unless the engine itself says that its switches are in effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from proctor.compile.collected import Collected
from proctor.compile.model import ANSWERS, Measured
from proctor.compile.orders import Options
from proctor.compile.whole_engines import EFFECT, Contest, measure_whole
from proctor.compile.workload import units_of
from proctor.engines.base import EngineConfig
from proctor.engines.compiling.settings import EncoderSwitches
from proctor.rows import ErrorKind, Event, Failure, Request, Response, UserError
from proctor.supervise.asking import Asking
from tests.engines.tiny import ask, picture

SWITCHES = EncoderSwitches(encoder=True)
WORK = units_of([ask(row, [picture()]) for row in range(4)], batch=2, rows=40)
OPTIONS = Options(rounds=3, warmups=1, processes=2)


class Engines:
    """Engines that say at once what they are told to; what happens is noted."""

    def __init__(self, in_effect: bool | None = True, text: Callable[[bool], str] = lambda _: "clear road") -> None:
        self.in_effect, self.text = in_effect, text
        self.said = True
        self.failing = False
        self.up = 0
        self.most_up = 0
        self.order: list[str] = []

    @contextmanager
    def start(self, config: EngineConfig, listen: Callable[[Event], None]) -> Iterator[Asking]:
        compiled = config.encoder is not None
        self.order.append("compiled" if compiled else "eager")
        if compiled and self.said:
            listen(Event(EFFECT, message="compile_mm_encoder is said", data={"in_effect": self.in_effect}))
        self.up += 1
        self.most_up = max(self.most_up, self.up)
        try:
            yield Said(self, compiled)
        finally:
            self.up -= 1


class Said:
    def __init__(self, engines: Engines, compiled: bool) -> None:
        self._engines, self._compiled = engines, compiled
        self.versions: dict[str, str] = {}

    def ask(self, requests: Sequence[Request]) -> list[Response]:
        if self._engines.failing and requests:
            return [Response.failed(one.id, Failure(ErrorKind.INFER_REJECTED, "too long")) for one in requests]
        return [Response(one.id, text=self._engines.text(self._compiled)) for one in requests]


def contested(engines: Engines, *, beside: bool = True) -> Measured:
    told = Collected(rows=WORK.rows)
    told.shapes = tuple(unit.shape for unit in WORK.units)
    contest = Contest(EngineConfig("vllm"), SWITCHES, engines.start, beside)
    measure_whole(contest, WORK, OPTIONS, lambda *_: None, told)
    return told.measured()


@pytest.mark.parametrize("beside", [True, False])
def test_both_arms_are_timed_in_every_pair(beside: bool) -> None:
    engines = Engines()
    found = contested(engines, beside=beside)
    assert engines.most_up == (2 if beside else 1)
    assert engines.up == 0
    assert engines.order == ["eager", "compiled", "compiled", "eager"]
    assert {(t.process, t.round, t.arm) for t in found.timings} == {
        (process, number, arm) for process in (0, 1) for number in (-1, 0, 1, 2) for arm in ("eager", "compiled")
    }
    assert {t.target for t in found.timings} == {ANSWERS}
    assert found.targets == {"encoder": 1}
    assert [(one.target, one.cache, one.graphs) for one in found.compilations] == [
        (ANSWERS, "cold", None),
        (ANSWERS, "warm", None),
    ]
    (answers,) = found.answers
    assert answers.probes == 2
    assert answers.passed


def test_where_there_is_room_the_arms_take_turns_round_by_round() -> None:
    found = contested(Engines())
    arms = [t.arm for t in found.timings if t.process == 0 and t.round >= 0]
    assert arms == ["eager", "compiled", "compiled", "eager", "eager", "compiled"]


@pytest.mark.parametrize("in_effect", [False, None])
def test_a_switch_without_effect_is_no_result(in_effect: bool | None) -> None:
    engines = Engines(in_effect)
    with pytest.raises(UserError, match="not compiled: compile_mm_encoder is said"):
        contested(engines)
    assert engines.up == 0


def test_an_engine_that_says_nothing_of_its_switches_is_no_result() -> None:
    engines = Engines()
    engines.said = False
    with pytest.raises(UserError, match="does not say whether its switches are in effect"):
        contested(engines)
    assert engines.up == 0


def test_answers_that_change_are_told() -> None:
    (answers,) = contested(Engines(text=lambda compiled: "nothing" if compiled else "clear road")).answers
    assert len(answers.changed) == answers.probes == 2
    assert not answers.passed


def test_a_row_that_is_refused_is_told() -> None:
    engines = Engines()
    engines.failing = True
    with pytest.raises(UserError, match="refuses a row of the sample: too long"):
        contested(engines)
