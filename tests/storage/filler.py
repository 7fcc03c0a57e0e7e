"""Fills an entry of a cache, says so, and never ends: ``python -m tests.storage.filler DIRECTORY LIMIT KEY``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from proctor.storage.cache import DiskCache
from proctor.storage.scratch import Bytes, Sink


def fill(sink: Sink) -> None:
    sink.write(b"half of it")
    print("filling", flush=True)
    time.sleep(600)


def check(data: Bytes) -> None:
    pass


if __name__ == "__main__":
    DiskCache(int(sys.argv[2]), Path(sys.argv[1])).get(sys.argv[3], 1000, fill, check)
