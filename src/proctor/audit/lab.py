"""Runs arms and keeps what they gave: the one place where sittings happen, whoever asks for them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import msgspec

from proctor.audit.bench import EngineOrder, Sat, Seat, Start, supervised
from proctor.audit.compare import compare, compare_repeats
from proctor.audit.design import engine_changes
from proctor.audit.model import Arm, Comparison, Observation, Sitting
from proctor.audit.probes import Probe
from proctor.audit.traffic import TOP, waves
from proctor.engines.knobs import Knob, Value, turned
from proctor.rows import ErrorKind, Request, UserError
from proctor.tasks import Task

Progress = Callable[[Sitting, int, int], None]
"""Told of every sitting that is over, how many that makes, and how many are known to come."""
Forced = Mapping[int, tuple[int, ...]]
"""Tokens that rows have to choose, by row id."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What stays the same in all arms.

    Attributes:
        order: the baseline's engine.
        knobs: of the traffic and of the engine.
        wanted: names of those that a search may turn.
        shared: whether sittings with the same engine may follow each other in one process; not where the engine keeps
            a cache between requests.
        seed: of orders.
        top: most likely tokens asked for; 0 where the engine has none to give.
        start: how an engine is started.
    """

    order: EngineOrder
    probes: tuple[Probe, ...]
    task: Task
    knobs: tuple[Knob, ...]
    wanted: tuple[str, ...] = ()
    shared: bool = True
    seed: int = 0
    top: int = TOP
    start: Start = supervised


class Lab:
    """Runs sittings and compares arms. Observations are kept packed: a few kilobytes a row."""

    def __init__(self, setting: Setting, *, progress: Progress | None = None) -> None:
        self.setting = setting
        self.arms: dict[str, Arm] = {}
        self.sat: list[Sat] = []
        self._packed: dict[Sitting, bytes] = {}
        self._rounds: dict[str, list[int]] = {}
        self._replayed: dict[str, bytes] = {}
        self._compared: dict[tuple[str, str], Comparison] = {}
        self._progress = progress or (lambda *_: None)
        self._planned = self._done = 0
        self._broken: dict[tuple[tuple[str, Value], ...], str] = {}

    @property
    def rounds(self) -> int:
        """Rounds so far."""
        return 1 + max((number for numbers in self._rounds.values() for number in numbers), default=-1)

    @property
    def versions(self) -> dict[str, str]:
        """Versions of what computed the answers of the first sitting."""
        return self.sat[0].versions if self.sat else {}

    def run(self, arms: Iterable[Arm], sittings: Sequence[Sitting]) -> None:
        """Runs sittings in their order; within a round, those with the same engine stand together if they may.

        An engine that does not work with an arm's settings costs that arm its answers: all of its rows fail.

        Raises:
            UserError: the baseline's own engine does not work.
        """
        self.arms.update({arm.name: arm for arm in arms})
        self._planned += len(sittings)
        for _, of_round in groupby(sittings, key=lambda sitting: sitting.round):
            for group in self.groups(list(of_round)):
                self._run_group(group)

    @property
    def replayed(self) -> list[str]:
        """Arms that also sat with given tokens."""
        return list(self._replayed)

    def keep_replay(self, arm: str, observations: Sequence[Observation]) -> None:
        """Keeps what an arm gave with given tokens, apart from its own answers."""
        self._replayed[arm] = msgspec.msgpack.encode(observations)

    def replay(self, arm: str) -> list[Observation] | None:
        """What an arm gave with given tokens; None if it did not sit so."""
        packed = self._replayed.get(arm)
        return None if packed is None else msgspec.msgpack.decode(packed, type=list[Observation])

    def apart(
        self, group: Sequence[Sitting], forced: Mapping[str, Forced], options: Mapping[str, object]
    ) -> Iterator[Sat]:
        """Runs sittings of one engine whose rows must choose given tokens; what they give is handed over, and not kept.

        Args:
            group: one of `groups`; its arms are known.
            forced: by arm; rows that are not named there choose for themselves.
            options: that the engine must be started with for that.

        Raises:
            UserError: the engine does not work in this way.
        """
        self._planned += len(group)
        order = self._order_of(group)
        config = msgspec.structs.replace(order.config, options={**order.config.options, **options})
        return self._sit(group, replace(order, config=config), forced)

    def again(self, arms: Sequence[Arm], rounds: int) -> None:
        """Runs arms in further rounds, each beside what it is compared with."""
        known = {arm.name: arm for arm in (*self.arms.values(), *arms)}
        names = list(dict.fromkeys(name for arm in arms for name in (arm.against, arm.name) if name))
        shuffle = random.Random(self.setting.seed + self.rounds)  # noqa: S311 (nothing secret)
        first = self.rounds
        sittings = [
            Sitting(name, number)
            for number in range(first, first + rounds)
            for name in shuffle.sample(names, len(names))
        ]
        self.run([known[name] for name in names], sittings)

    def comparison(self, arm: str, against: str | None = None) -> Comparison:
        """An arm against its reference, over the rounds that both sat in."""
        reference = self.arms[arm].against if against is None else against
        if reference == arm:
            return self.repeats(arm)
        key = (arm, reference)
        if key not in self._compared:
            self._compared[key] = self._compare(arm, reference, self.shared_rounds(arm, reference))
        return self._compared[key]

    def rounds_of(self, arm: str) -> list[int]:
        """Rounds in which an arm sat."""
        return list(self._rounds.get(arm, ()))

    def shared_rounds(self, arm: str, against: str) -> list[int]:
        """Rounds in which both sat."""
        return sorted(set(self._rounds.get(arm, ())) & set(self._rounds.get(against, ())))

    def by_round(self, arm: str) -> list[Comparison]:
        """An arm against its reference, round by round: an effect that is switched on and off shows in each."""
        against = self.arms[arm].against
        return [self._compare(arm, against, [number]) for number in self.shared_rounds(arm, against)]

    def repeats(self, arm: str) -> Comparison:
        """The rounds of an arm against each other: each with an engine of its own."""
        key = (arm, arm)
        if key not in self._compared:
            self._compared[key] = compare_repeats(self.observations(arm))
        return self._compared[key]

    def repeats_without(self, arm: str, left_out: int) -> Comparison:
        """The rounds of an arm against each other, but for one."""
        return compare_repeats(self.observations(arm, set(self._rounds.get(arm, ())) - {left_out}))

    def has_sat(self, arm: str) -> bool:
        """Whether there is anything of this arm."""
        return bool(self._rounds.get(arm))

    def observations(self, arm: str, rounds: Iterable[int] | None = None) -> list[Observation]:
        """What the probes got in an arm."""
        wanted = self._rounds.get(arm, []) if rounds is None else sorted(rounds)
        packed = [self._packed[Sitting(arm, number)] for number in wanted]
        return [found for data in packed for found in msgspec.msgpack.decode(data, type=list[Observation])]

    def rate(self, arm: str) -> float | None:
        """Requests a second of an arm, neighbours included; None where it did not sit."""
        sat = [one for one in self.sat if one.sitting.arm == arm]
        seconds = sum(one.seconds for one in sat)
        return sum(one.requests for one in sat) / seconds if seconds else None

    def order_of(self, changes: Mapping[str, object]) -> EngineOrder:
        """The engine of an arm with these changes."""
        order = self.setting.order
        config, env = order.config, dict(order.env)
        for knob in self.setting.knobs:
            if knob.name in changes:
                config, env = turned(config, env, knob, changes[knob.name])  # type: ignore[arg-type]
        return replace(order, config=config, env=env)

    def _compare(self, arm: str, against: str, rounds: Sequence[int]) -> Comparison:
        return compare(self.observations(arm, rounds), self.observations(against, rounds), arm=arm, against=against)

    def groups(self, sittings: Sequence[Sitting]) -> list[list[Sitting]]:
        """Sittings of one round, those together that may follow each other in one process of an engine."""
        if not self.setting.shared:
            return [[sitting] for sitting in sittings]
        groups: dict[tuple[object, ...], list[Sitting]] = {}
        for sitting in sittings:
            groups.setdefault(engine_changes(self.arms[sitting.arm], self.setting.knobs), []).append(sitting)
        return list(groups.values())

    def _run_group(self, group: Sequence[Sitting]) -> None:
        settings, left = engine_changes(self.arms[group[0].arm], self.setting.knobs), list(group)
        if settings not in self._broken:
            try:
                for sat in self._sit(group, self._order_of(group)):
                    self._keep(sat)
                    left.remove(sat.sitting)
            except UserError as error:
                if not settings:
                    raise
                self._broken[settings] = error.what
        for sitting in left:
            self._keep(self._lost(sitting, self._broken[settings]))

    def _lost(self, sitting: Sitting, why: str) -> Sat:
        """A sitting that did not take place: no row has an answer."""
        failure = (ErrorKind.ENGINE_INIT_FAILED.value, why)
        rows = [probe.request.id for probe in self.setting.probes]
        missing = [Observation(arm=sitting.arm, round=sitting.round, row_id=row, failure=failure) for row in rows]
        self._done += 1
        self._progress(sitting, self._done, self._planned)
        return Sat(sitting=sitting, observations=tuple(missing), seconds=0.0, requests=0, tokens=0)

    def _order_of(self, group: Sequence[Sitting]) -> EngineOrder:
        return self.order_of(self.arms[group[0].arm].changes)

    def _sit(
        self, group: Sequence[Sitting], order: EngineOrder, forced: Mapping[str, Forced] | None = None
    ) -> Iterator[Sat]:
        setting = self.setting
        with setting.start(order) as engine:
            seat = Seat(engine, setting.probes, setting.task)
            for sitting in group:
                given = (forced or {}).get(sitting.arm, {})
                requests = [_made_to(probe.request, given) for probe in setting.probes]
                changes = self.arms[sitting.arm].changes
                asked = waves(requests, changes, setting.seed, setting.top)
                sat = seat.sit(sitting, asked, warm=changes.get("cache") == "warm")
                self._done += 1
                self._progress(sitting, self._done, self._planned)
                yield sat

    def _keep(self, sat: Sat) -> None:
        arm = sat.sitting.arm
        self._packed[sat.sitting] = msgspec.msgpack.encode(sat.observations)
        self._rounds.setdefault(arm, []).append(sat.sitting.round)
        self._compared = {key: kept for key, kept in self._compared.items() if arm not in key}
        self.sat.append(msgspec.structs.replace(sat, observations=()))


def _made_to(request: Request, forced: Forced) -> Request:
    """The request with the tokens that it has to be answered with, if there are any for its row."""
    tokens = forced.get(request.id, ())
    sampling = msgspec.structs.replace(request.sampling, forced=tokens)
    return msgspec.structs.replace(request, sampling=sampling)
