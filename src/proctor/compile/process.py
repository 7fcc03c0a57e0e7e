"""One process of a bench, from its start to the end of its whole group.

It is told what to do over its standard input, as MessagePack, and tells what it finds over a pipe, one line of JSON a
piece. What it prints goes to a log.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from proctor.compile.orders import Order, Piece
from proctor.rows import UserError
from proctor.supervise.childlog import ChildLog
from proctor.supervise.guard import Guard
from proctor.supervise.warden import end_group

ENTRY = Path(__file__).with_name("entry.py")
MARK = "PROCTOR_COMPILE_GROUP"
_CHUNK = 1 << 16
_OTHER_ENVIRONMENT = ("PYTHONPATH", "PYTHONHOME")


def pieces(
    order: Order, folder: Path, *, seconds: float, python: str | None = None, env: Mapping[str, str] | None = None
) -> Iterator[Piece]:
    """Runs a process and gives what it tells, as it tells it. However this ends, the process and its children end too.

    The last piece is `finished`, or has `trouble`.

    Args:
        order: what it is to do.
        folder: for its log.
        seconds: after so many it is ended.
        python: its interpreter; None is the one that runs Proctor.
        env: environment variables, on top of this process's own.

    Raises:
        UserError: the interpreter cannot be run.
    """
    log = ChildLog(folder / f"process-{order.process}.log")
    try:
        with _running(order, log, python, env or {}) as (process, output):
            yield from _read(process, output, log, seconds)
    finally:
        log.close()


@contextmanager
def _running(
    order: Order, log: ChildLog, python: str | None, env: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    ours, theirs = os.pipe()
    guard = Guard()
    try:
        process = _spawn(log, python, {**env, MARK: mark}, theirs)
    except OSError as error:
        os.close(ours)
        raise UserError(f"cannot run {python or sys.executable}: {error}", where="engine.python") from error
    finally:
        os.close(theirs)
    try:
        guard.watch(process.pid, f"{MARK}={mark}".encode())
        _tell(process, order)
        yield process, ours
    finally:
        end_group(process.pid, f"{MARK}={mark}".encode())
        guard.release()
        guard.close()
        process.wait()
        os.close(ours)


def _spawn(log: ChildLog, python: str | None, env: Mapping[str, str], output: int) -> subprocess.Popen[bytes]:
    inherited = dict(os.environ)
    if python is not None and python != sys.executable:  # what they name is not for another interpreter
        inherited = {name: value for name, value in inherited.items() if name not in _OTHER_ENVIRONMENT}
    return subprocess.Popen(
        [python or sys.executable, "-P", str(ENTRY), str(output)],
        env={**inherited, **env},
        stdin=subprocess.PIPE,
        stdout=log.descriptor,
        stderr=log.descriptor,
        pass_fds=(output,),
        start_new_session=True,
    )


def _tell(process: subprocess.Popen[bytes], order: Order) -> None:
    if process.stdin is None:
        raise RuntimeError("the process was started without a standard input")
    try:
        with process.stdin as stdin:
            stdin.write(msgspec.msgpack.encode(order))
    except BrokenPipeError:
        return  # it is dead already: how is told by what it left


def _read(process: subprocess.Popen[bytes], output: int, log: ChildLog, seconds: float) -> Iterator[Piece]:
    give_up = time.monotonic() + seconds
    buffer, ended = b"", False
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while not ended:
            left = give_up - time.monotonic()
            if left <= 0 or not selector.select(left):
                yield Piece(trouble=f"it took longer than {seconds:,.0f} s{_told(log)}")
                return
            chunk = os.read(output, _CHUNK)
            *lines, buffer = (buffer + chunk).split(b"\n")
            ended = not chunk
            for line in lines:
                piece = msgspec.json.decode(line, type=Piece)
                yield piece
                if piece.finished or piece.trouble:
                    return
    yield Piece(trouble=f"it {_end_of(process)}{_told(log)}")


def _end_of(process: subprocess.Popen[bytes]) -> str:
    try:
        status = process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        return "closed its pipe"
    return f"died by {signal.Signals(-status).name}" if status < 0 else f"exited with code {status}"


def _told(log: ChildLog) -> str:
    lines = log.last_lines()
    return f"; its last output: {lines}" if lines else ""
