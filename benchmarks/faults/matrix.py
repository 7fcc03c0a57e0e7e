"""The rows of the matrix: each fault, what it strikes, and who is guilty."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.faults import actions, data
from benchmarks.faults.actions import Action
from benchmarks.faults.cell import Cell
from benchmarks.faults.data import HIT, ROWS, SHARD_ROWS
from benchmarks.faults.systems import Planted

NOTHING = Planted()


@dataclass(frozen=True, slots=True)
class Fault:
    """One row of the matrix.

    Attributes:
        name: dotted, by what it strikes.
        what: one line for a person.
        guilty: rows that the fault strikes itself; every other row is owed its right answer.
        planted: what goes wrong inside the pipeline.
        damage: what is done to a copy of the data.
        action: what strikes from outside while the driver runs.
        lasting: whether `action` strikes the restarted driver as well.
        before_restart: what happens before the command is given again, if it has to be.
        driver: whether the driver itself is struck, so that recovery is counted from the restart on.
        own_ray: whether the driver starts a Ray of its own.
        worker_cpus: nodes of a cluster of the cell's own, beside its head.
        store_mb: size of the object store of a Ray of the driver's own.
        disk_mb: size of a file system of the cell's own, which needs namespaces.
        pixels: side of the images, where they are not to be tiny.
        limit: seconds until a driver is given up.
    """

    name: str
    what: str
    guilty: frozenset[int] = frozenset()
    planted: Planted = NOTHING
    damage: Callable[[Path], None] | None = None
    action: Action | None = None
    lasting: bool = False
    before_restart: Callable[[Cell], None] | None = None
    driver: bool = False
    own_ray: bool = False
    worker_cpus: tuple[int, ...] = ()
    store_mb: int | None = None
    disk_mb: int | None = None
    pixels: int | None = None
    limit: float = 240.0

    @property
    def baseline(self) -> str:
        """The control that its seconds are compared to."""
        return "none.own_ray" if self.own_ray else "none"


def _engine(name: str, what: str, kind: str, rows: tuple[int, ...] = (HIT,), **more: Any) -> Fault:
    """A fault planted in front of the engine at chosen rows; one with `times` passes, and leaves nobody guilty."""
    limit = more.pop("limit", 240.0)
    guilty = frozenset() if "times" in more or kind == "delay" else frozenset(rows)
    planted = Planted(faults=({"kind": kind, "rows": list(rows), **more},))
    return Fault(f"engine.{name}", what, guilty, planted, limit=limit)


def _data(name: str, what: str, damage: Callable[[Path], None], guilty: frozenset[int] = frozenset({HIT})) -> Fault:
    return Fault(f"data.{name}", what, guilty, damage=damage)


def _driver(name: str, what: str, action: Action, before_restart: Callable[[Cell], None] | None = None) -> Fault:
    return Fault(f"driver.{name}", what, action=action, before_restart=before_restart, driver=True)


def _task(name: str, what: str, **options: Any) -> Fault:
    return Fault(name, what, frozenset({HIT}), Planted(task=tuple(options.items())))


_BLANK = frozenset(row for row in range(ROWS) if row % 100 < 68)
_SHARD = frozenset(range(HIT // SHARD_ROWS * SHARD_ROWS, (HIT // SHARD_ROWS + 1) * SHARD_ROWS))
_CUT = frozenset(row for row in _SHARD if row >= HIT)
_NEIGHBOURS = tuple(range(1000, 1040))

FAULTS = (
    Fault("none", "nothing: the control"),
    Fault("none.own_ray", "nothing, with a Ray that the driver starts itself", own_ray=True),
    _engine("segfault", "one row kills the engine by SIGSEGV, each time", "crash"),
    _engine("segfault.three_rows", "three rows far apart do", "crash", (333, HIT, 1501)),
    _engine("segfault.neighbours", "forty neighbouring rows do", "crash", _NEIGHBOURS, limit=600.0),
    _engine("segfault.once", "the engine dies by SIGSEGV once and never again", "crash", times=1),
    Fault(
        "engine.sigkill.once",
        "the OOM killer ends the engine once",
        action=actions.signal_engine(signal.SIGKILL),
    ),
    _engine("exit", "one row makes the engine leave by os._exit", "exit"),
    _engine("exception", "one row raises an exception out of the engine", "raise"),
    _engine("exception.once", "an exception out of the engine, once", "raise", times=1),
    _engine("memory_error", "one row raises MemoryError", "oom"),
    _engine("stall.sleep", "one row freezes the engine in a sleep", "stall"),
    _engine("stall.gil", "one row freezes the engine with the interpreter's lock held", "hold_gil"),
    _engine("stall.once", "the engine freezes once", "stall", times=1),
    _engine("stall.gil.once", "the engine freezes once with the interpreter's lock held", "hold_gil", times=1),
    Fault(
        "engine.sigstop",
        "the engine's process is stopped by SIGSTOP",
        action=actions.signal_engine(signal.SIGSTOP),
    ),
    Fault("engine.load.once", "the first load fails", planted=Planted(engine=(("load_failures", 1),))),
    Fault(
        "engine.load.one_of_two",
        "one of the two engines dies at every start, for ever",
        action=actions.kill_one_slot,
        lasting=True,
    ),
    Fault(
        "engine.load.always",
        "no engine loads; then the cause is mended and the command given again",
        planted=Planted(engine=(("load_failures", actions.LOAD_FAILURES),)),
        before_restart=actions.heal_loads,
    ),
    _engine(
        "slow_rows", "ten rows take 1.5 s each: slow, not frozen", "delay", tuple(range(0, ROWS, 200)), seconds=1.5
    ),
    Fault(
        "engine.blank",
        "68 % of the answers are blank",
        _BLANK,
        Planted(faults=({"kind": "blank", "every": 100, "below": 68},)),
    ),
    _engine("truncated", "ten answers are cut short by a limit of tokens", "truncate", tuple(range(7, ROWS, 200))),
    _engine("rejected", "the engine refuses ten rows", "reject", tuple(range(5, ROWS, 200))),
    _data("image", "an image that is none", data.break_image),
    _data("text", "a question that is not UTF-8", data.break_text),
    _data("offset", "a shard with one wrong offset", data.break_offset, frozenset({HIT - 1, HIT})),
    _data("shard_cut", "a shard that ends in the middle of a row", data.cut_shard, _CUT),
    _data("shard_missing", "a shard that is not there", data.remove_shard, _SHARD),
    _data("byte_flipped", "one byte of a shard is another one; the index has the shard's hash", data.flip_byte, _SHARD),
    Fault("read.segfault", "one row kills its reader by SIGSEGV", frozenset({HIT}), Planted(read_crash=(HIT,))),
    _task("prepare.segfault", "one row kills the worker that prepares it", prompt_crash=[HIT]),
    _task("prepare.exception", "preparing one row raises", prompt_raise=[HIT]),
    _task("score.segfault", "one answer kills the worker that marks it", parse_crash=[HIT]),
    _task("score.exception", "marking one answer raises", parse_raise=[HIT]),
    Fault("ray.actor_killed", "the Ray worker of an engine is SIGKILLed", action=actions.kill_actor),
    Fault(
        "ray.worker_killed",
        "a Ray worker is SIGKILLed while it prepares rows",
        planted=Planted(task=(("prompt_ms", 2.0),)),
        action=actions.kill_worker,
    ),
    Fault(
        "ray.node_lost",
        "a node with an engine goes down; another comes 3 s later",
        action=actions.lose_node,
        worker_cpus=(4, 4),
    ),
    Fault(
        "ray.store_small",
        "an object store of half the data's size, so that Ray spills",
        own_ray=True,
        store_mb=80,
        pixels=160,
    ),
    _driver("sigkill", "the driver is SIGKILLed", actions.signal_driver(signal.SIGKILL)),
    _driver("sigterm", "the driver gets SIGTERM", actions.signal_driver(signal.SIGTERM)),
    _driver("ctrl_c", "the driver gets Ctrl-C", actions.signal_driver(signal.SIGINT)),
    _driver(
        "power_cut",
        "the driver is SIGKILLed, the newest result file and the last event are cut in half",
        actions.signal_driver(signal.SIGKILL),
        actions.cut_files,
    ),
    Fault("driver.two_at_once", "the same command is given twice", action=actions.start_another),
    Fault(
        "output.disk_full",
        "the disk is full for some seconds",
        action=actions.fill_disk,
        before_restart=actions.free_disk,
        own_ray=True,
        disk_mb=32,
    ),
    Fault(
        "output.read_only",
        "the disk is read-only for some seconds",
        action=actions.lock_disk,
        before_restart=actions.unlock_disk,
        own_ray=True,
        disk_mb=32,
    ),
)
"""All of them, in the order of the matrix."""
