"""Whole engines against each other, where an encoder cannot be looked into: vLLM with its switches on, and off.

Only answers end to end are timed. They are a result only if the switches are in effect, which the engine itself says
once it has resolved its configuration: where they are not, both arms would run the same code, and nothing is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from proctor.compile.answers import as_probe, gate_answers
from proctor.compile.collected import Collected
from proctor.compile.model import ANSWERS, ArmName, Cache, Compilation
from proctor.compile.orders import Options, Piece, Workload
from proctor.compile.sequence import sittings
from proctor.compile.timing import Arm, MonotonicClock, Subject, interleaved, order_of
from proctor.engines.base import EngineConfig
from proctor.engines.compiling.settings import EncoderSwitches
from proctor.rows import Event, Request, Response, UserError
from proctor.supervise.asking import Asking

EFFECT = "compile.effect"
"""Event of an engine that says of one of its switches whether it is in effect."""
ARMS: tuple[ArmName, ...] = ("eager", "compiled")
Listen = Callable[[Event], None]
Start = Callable[[EngineConfig, Listen], AbstractContextManager[Asking]]
"""Starts an engine, whose events are listened to, and ends it behind the block."""


class Contest(NamedTuple):
    """What is compared.

    Attributes:
        config: of the engine, without switches.
        switches: of the compiled arm.
        start: starts an engine.
        beside: whether there is room for both at once: they then take turns round by round. Otherwise one follows the
            other, in turned order from pair to pair, and what drifts between them is in the spread between pairs.
        dtype: the model's number format, for judging changed answers.
    """

    config: EngineConfig
    switches: EncoderSwitches
    start: Start
    beside: bool
    dtype: str = "bfloat16"

    @property
    def targets(self) -> dict[str, int]:
        """The switches that are not as vLLM has them."""
        default, mine = EncoderSwitches(), self.switches
        names = mine.__struct_fields__
        return {name: 1 for name in names if getattr(mine, name) != getattr(default, name)}


class _Up(NamedTuple):
    """An engine that is up, and the seconds that its start took."""

    engine: Asking
    seconds: float

    def answers(self, requests: Sequence[Request]) -> list[Response]:
        responses = self.engine.ask(requests)
        for response in responses:
            if response.failure is not None:
                raise UserError(f"the engine refuses a row of the sample: {response.failure.message}", where="source")
        return responses


def measure_whole(
    contest: Contest, work: Workload, options: Options, say: Callable[[int, str], None], told: Collected
) -> None:
    """Measures pairs of engines, as many as the options have processes, and more while nothing is decided.

    Raises:
        UserError: an engine does not work, or one of its switches is not in effect.
    """
    told.targets = contest.targets
    for number, *_ in sittings(options, told):
        _Sitting(contest, work, options, number, partial(say, number), told).run()


class _Sitting:
    """One pair."""

    def __init__(
        self,
        contest: Contest,
        work: Workload,
        options: Options,
        number: int,
        say: Callable[[str], None],
        told: Collected,
    ) -> None:
        self._contest, self._work, self._options, self._number = contest, work, options, number
        self._say, self._told = say, told
        self._starts: dict[ArmName, float] = {}
        self._asked: dict[ArmName, list[list[Response]]] = {arm: [] for arm in ARMS}

    def run(self) -> None:
        """Times both arms, and compares what they answer."""
        order = order_of(ARMS, self._number)
        for together in [order] if self._contest.beside else [[arm] for arm in order]:
            with ExitStack() as stack:
                up = {arm: stack.enter_context(self._up(arm)) for arm in together}
                self._time({arm: up[arm] for arm in ARMS if arm in up})
                for arm in together:
                    self._ask(arm, up[arm])
        extra = max(0.0, self._starts["compiled"] - self._starts["eager"])
        cache: Cache = "warm" if self._number else "cold"
        compilation = Compilation(ANSWERS, self._number, cache, extra, graphs=None)
        self._told.add(Piece(compilations=(compilation,)))
        if self._number == 0 and self._options.agreement:
            self._compare()

    def _up(self, arm: ArmName) -> AbstractContextManager[_Up]:
        return _Start(self._contest, arm, self._say, self._starts)

    def _time(self, up: dict[ArmName, _Up]) -> None:
        subjects = [self._subject(up, unit.shape.name, unit.requests) for unit in self._work.units]
        for number, timings in interleaved(subjects, self._options.rounds, self._options.warmups, self._number):
            self._say(f"{' and '.join(up)}: round {number + 1} of {self._options.rounds}")
            self._told.add(Piece(timings=tuple(timings)))

    @staticmethod
    def _subject(up: dict[ArmName, _Up], shape: str, requests: Sequence[Request]) -> Subject:
        arms = {arm: Arm(_nothing, partial(engine.answers, requests)) for arm, engine in up.items()}
        return Subject(ANSWERS, shape, arms, MonotonicClock())

    def _ask(self, arm: ArmName, up: _Up) -> None:
        if self._number == 0 and self._options.agreement:
            self._say(f"{arm}: answers to compare")
            for _ in range(2):
                self._asked[arm].append(list(up.engine.ask(self._probes())))

    def _probes(self) -> list[Request]:
        requests = [as_probe(request) for unit in self._work.units for request in unit.requests]
        return [replace(request, id=number) for number, request in enumerate(requests)]

    def _compare(self) -> None:
        names = [
            f"row {number} of {unit.shape.name}" for unit in self._work.units for number in range(len(unit.requests))
        ]
        eager, compiled = (iter(self._asked[arm]) for arm in ARMS)
        found = gate_answers(
            ANSWERS, dict(enumerate(names)), lambda: next(eager), lambda: next(compiled), self._contest.dtype
        )
        self._told.add(Piece(answers=(found,)))


class _Start(AbstractContextManager[_Up]):
    """Starts the engine of an arm, and looks whether its switches are in effect."""

    def __init__(
        self, contest: Contest, arm: ArmName, say: Callable[[str], None], starts: dict[ArmName, float]
    ) -> None:
        self._contest, self._arm, self._say, self._starts = contest, arm, say, starts
        self._stack = ExitStack()

    def __enter__(self) -> _Up:
        self._say(f"starting the {self._arm} engine")
        heard: list[Event] = []
        switches = self._contest.switches if self._arm == "compiled" else None
        began = time.monotonic()
        engine = self._stack.enter_context(
            self._contest.start(replace(self._contest.config, encoder=switches), heard.append)
        )
        self._starts[self._arm] = time.monotonic() - began
        try:
            engine.ask([])  # an engine that could not start says so
            if switches is not None:
                check_effect(heard)
        except BaseException:
            self._stack.close()
            raise
        return _Up(engine, self._starts[self._arm])

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def check_effect(heard: Sequence[Event]) -> None:
    """Looks at what an engine has said of its switches.

    Raises:
        UserError: one is not in effect, or that is not known, or nothing was said: a difference would be no result.
    """
    effects = [event for event in heard if event.kind == EFFECT]
    if not effects:
        raise UserError("the engine does not say whether its switches are in effect", where="engine.compile")
    for event in effects:
        if event.data.get("in_effect") is not True:
            raise UserError(
                f"not compiled: {event.message}",
                where="engine.compile",
                fix="both arms would run the same code: change what keeps it off, or measure another switch",
            )


def _nothing() -> None:
    """Engines of their own need no switching."""
