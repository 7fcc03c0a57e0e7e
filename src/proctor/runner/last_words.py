"""Speaks for a driver that can no longer speak: killed, or ended by Ray, whose library leaves a process at once and in
silence when Ray's own processes on its machine have died.

Run as a script this file waits at a pipe for the driver's end.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_GOODBYE = b"."


@contextmanager
def last_words(message: str) -> Iterator[None]:
    """Has `message` written on stderr if this process ends before the block does, however it ends."""
    witness = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, message],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        bufsize=0,
        cwd="/",
        start_new_session=True,  # what a terminal sends to the driver is not for the witness
    )
    assert witness.stdin is not None
    try:
        yield
    finally:
        with suppress(OSError), witness.stdin:
            witness.stdin.write(_GOODBYE)
        witness.wait()


def _witness(message: str) -> None:
    if not sys.stdin.buffer.read():
        sys.stderr.write(f"{message}\n")


if __name__ == "__main__":
    _witness(sys.argv[1])
