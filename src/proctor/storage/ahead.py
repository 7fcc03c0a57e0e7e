"""Does pieces of work ahead of whoever uses their results, a bounded amount of it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

MOST_BYTES = 32 << 20
"""Most bytes that are on their way at once, unless a single piece of work has more."""
MOST_JOBS = 8
"""Most pieces of work at once."""


class Job(NamedTuple, Generic[T]):
    """A piece of work.

    Attributes:
        size: bytes of its result.
        run: does it; the event is set when nobody waits for the result any more.
    """

    size: int
    run: Callable[[threading.Event], T]


def ahead(jobs: Iterable[Job[T]]) -> Generator[T, None, None]:
    """The results of `jobs`, in order; while one of them is used, the next ones are under way, each in a thread.

    What a job raises is raised in its turn, and ends the others.
    """
    given_up = threading.Event()
    running: deque[tuple[int, Future[T]]] = deque()
    pool = ThreadPoolExecutor(MOST_JOBS, thread_name_prefix="proctor-ahead")
    try:
        for job in jobs:
            while running and (len(running) == MOST_JOBS or job.size + sum(size for size, _ in running) > MOST_BYTES):
                yield running.popleft()[1].result()
            running.append((job.size, pool.submit(job.run, given_up)))
        while running:
            yield running.popleft()[1].result()
    finally:
        given_up.set()
        pool.shutdown(wait=False, cancel_futures=True)
