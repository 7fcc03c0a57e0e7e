"""Starts the driver, lets faults strike, sees that all of it is gone, and starts it again until the run is complete."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.faults.processes import MARK, end, marked, polled, title
from benchmarks.faults.systems import ROOT
from benchmarks.soak.roles import of_engines
from benchmarks.soak.samples import RowCount, Sampler
from benchmarks.soak.schedule import Strike, schedule
from benchmarks.soak.strikes import Chaos, Struck

ENGINES_GONE_SECONDS = 5.0
RAY_GONE_SECONDS = 30.0
SAMPLE_SECONDS = 3.0
HANG_SECONDS = 300.0
"""Without a new record for so long a driver hangs. The run's own watch looks at a minute."""
FRUITLESS = 3
"""So many drivers in a row that ended by themselves, incomplete and without a new record, are the end of the soak."""
QUIET_SHARE = 0.75
"""Of the minutes: no fault strikes after that, so that the run can end in time."""
EXPECTED_EXITS = {0: "complete", 3: "incomplete", 130: "interrupted"}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a soak is made of. Seconds are those of the clock of the chaos."""

    rows: int = 100_000
    seed: int = 1
    minutes: float = 30.0
    every: float = 5.0
    large_every: float = 180.0
    row_ms: float = 4.0
    block_rows: int = 512


@dataclass(slots=True)
class Life:
    """One driver from its start until the last of its processes is gone.

    Attributes:
        cause: the faults that hit the driver itself or its disk, or why the soak ended it.
        ended: how it ended, in words.
        gone_s: seconds until nothing of it was left.
        orphans: what was still there when there should have been nothing, with its state.
    """

    number: int
    began: float
    rows_before: int
    cause: list[str] = field(default_factory=list)
    ended: str = ""
    code: int = 0
    until: float = 0.0
    rows_after: int = 0
    gone_s: float = 0.0
    orphans: list[str] = field(default_factory=list)


class Keeper:
    """A soak under way."""

    def __init__(self, settings: Settings, spec: Path, run_dir: Path, work: Path, disk: Path | None) -> None:
        self._settings, self._spec, self._run_dir, self._work = settings, spec, run_dir, work
        self._began = time.monotonic()
        seconds = 60 * settings.minutes
        self._strikes = deque(schedule(settings.seed, seconds, settings.every, settings.large_every))
        self._chaos = Chaos(run_dir, disk)
        self._clock = 0.0
        self._sampler = Sampler(self._mark, RowCount(run_dir / "results"), SAMPLE_SECONDS)
        self.lives: list[Life] = []
        self.struck: list[Struck] = []
        self.problems: list[str] = []
        self.samples = self._sampler.samples

    @property
    def seconds(self) -> float:
        """Since the soak began."""
        return time.monotonic() - self._began

    def run(self) -> None:
        """Keeps at it until the run is complete, or there is no prospect."""
        with self._sampler:
            while self._goes_on():
                self._live()

    def _goes_on(self) -> bool:
        if self.seconds >= 60 * self._settings.minutes:
            self.problems.append(f"not complete after {self._settings.minutes:g} minutes")
            return False
        last = self.lives[-FRUITLESS:]
        if len(last) == FRUITLESS and not any(life.cause or life.rows_after > life.rows_before for life in last):
            self.problems.append(f"{FRUITLESS} drivers in a row ended by themselves without a new record")
            return False
        return not self.lives or self.lives[-1].code != 0

    def _mark(self) -> str:
        return f"soak-{os.getpid()}-{len(self.lives)}"

    def _live(self) -> None:
        """One driver."""
        life = Life(len(self.lives) + 1, time.time(), self._sampler.done)
        self.lives.append(life)
        print(f"driver {life.number} starts at {self.seconds:.0f} s, {life.rows_before:,} rows done", flush=True)
        process = self._start(life.number)
        up_at = moved_at = time.monotonic()
        up, rows = False, life.rows_before
        while process.poll() is None:
            now = time.monotonic()
            if not up:
                up, up_at = self._sampler.roles[0] == self._mark() and "hub" in self._sampler.roles[1], now
            if self._sampler.done != rows:
                moved_at, rows = now, self._sampler.done
            if self.seconds >= 60 * self._settings.minutes:
                life.cause.append("end of the soak's time")
                process.kill()
            elif now - moved_at >= HANG_SECONDS:
                self._report_hang(life, process.pid)
                life.cause.append("hang")
                process.kill()
            elif up:
                self._strike_if_due(self._clock + now - up_at, life, process)
            time.sleep(0.05)
        self._clock += time.monotonic() - up_at if up else 0.0
        self._close(life, process.returncode)

    def _strike_if_due(self, clock: float, life: Life, process: subprocess.Popen[bytes]) -> None:
        quiet = self.seconds >= QUIET_SHARE * 60 * self._settings.minutes
        if quiet or not self._strikes or self._strikes[0].at > clock:
            return
        strike: Strike = self._strikes.popleft()
        struck = self._chaos.strike(strike, self._mark(), life.number, lambda: process.poll() is None)
        self.struck.append(struck)
        if struck.target is not None and strike.kind.startswith(("driver", "cut", "disk")):
            life.cause.append(strike.kind)
        print(f"  {self.seconds:5.0f} s  {strike.kind:<20} {struck.target or '-'}", flush=True)

    def _close(self, life: Life, code: int) -> None:
        """The driver has ended: nothing of it may stay."""
        life.code, life.until = code, time.time()
        life.ended = f"exit {code}" if code >= 0 else f"ended by {signal.Signals(-code).name}"
        if not life.cause and code not in EXPECTED_EXITS:
            self.problems.append(f"driver {life.number}: {life.ended}, and no fault had hit it: see {self._log(life)}")
        if code == 130 and not life.cause:
            self.problems.append(f"driver {life.number} was interrupted by nobody")
        began = time.monotonic()
        mark = self._mark()
        engines_gone = any(not of_engines(mark) for _ in polled(ENGINES_GONE_SECONDS, 0.1))
        late = [] if engines_gone else of_engines(mark)
        left = late or marked(mark)
        if left and not late:
            left = [] if any(not marked(mark) for _ in polled(RAY_GONE_SECONDS, 0.1)) else marked(mark)
        life.gone_s = round(time.monotonic() - began, 1)
        life.orphans = [_shown(process) for process in left]
        end(marked(mark))
        self._chaos.cut()
        life.rows_after = RowCount(self._run_dir / "results")()
        print(
            f"driver {life.number}: {life.ended}, gone in {life.gone_s} s, left: {life.orphans or 'nothing'}",
            flush=True,
        )

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        """The same command each time, as a person would give it."""
        own = {MARK: self._mark(), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "RAY_TMPDIR": str(self._work)}
        env = {**os.environ, **own, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
        command = [sys.executable, "-m", "proctor", "run", str(self._spec), "--json"]
        # A job in the background of a shell ignores Ctrl-C, and so would all that it starts.
        heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        with (self._work / f"driver-{number}.log").open("wb") as output:
            return subprocess.Popen(
                command, env=env, cwd=ROOT, stdout=output, stderr=output, start_new_session=True, preexec_fn=heed
            )

    def _log(self, life: Life) -> Path:
        return self._work / f"driver-{life.number}.log"

    def _report_hang(self, life: Life, pid: int) -> None:
        pystack = Path(sys.executable).with_name("pystack")
        done = subprocess.run([pystack, "remote", str(pid)], capture_output=True, text=True, timeout=60, check=False)
        file = self._work / f"hang-{life.number}.txt"
        file.write_text(done.stdout + done.stderr)
        self.problems.append(f"driver {life.number}: no new record for {HANG_SECONDS:g} s, stacks in {file}")


def _shown(process: psutil.Process) -> str:
    try:
        return f"{title(process)[:80].strip()} ({process.status()})"
    except psutil.Error:
        return f"process {process.pid}"
