"""Runs in vLLM's environment: one engine, several jobs after one another. Usage: vllm_child.py JOBS RESULTS.

Shares no test library with the tests: that environment has none.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from proctor.engines.base import Engine, EngineConfig, IterFeed
from proctor.engines.registry import make_engine
from proctor.rows import Request, Response, UserError


class Job(msgspec.Struct):
    """Requests for one stream; `trickle` hands them out one at a time, while others are running."""

    name: str
    requests: list[Request]
    trickle: bool = False


class Jobs(msgspec.Struct):
    """An engine and its jobs, after a look at configurations that are never loaded. Without jobs it is not either."""

    config: EngineConfig
    jobs: list[Job] = []
    checked: list[EngineConfig] = []


class Take(msgspec.Struct):
    """One call of the feed: did it wait, how many requests were unfinished before it, how many did it give."""

    wait: bool
    unfinished: int
    given: int


class Result(msgspec.Struct):
    """What came of a job."""

    responses: list[Response]
    reports: list[int]
    takes: list[Take] = []


class Results(msgspec.Struct):
    """What came of all jobs, by name, and what the user's mistake is in each configuration that was checked."""

    results: dict[str, Result]
    mistakes: list[str | None]


class Trickle:
    """A feed that has one more request at every third look, and keeps a diary."""

    def __init__(self, requests: list[Request]) -> None:
        self._requests = list(requests)
        self._looks = 0
        self.finished = 0
        self._given = 0
        self.takes: list[Take] = []

    def take(self, room: int, *, wait: bool) -> list[Request]:
        self._looks += 1
        ready = wait or self._looks % 3 == 0
        given = self._requests[:1] if ready and room else []
        self.takes.append(Take(wait, self._given - self.finished, len(given)))
        self._requests = self._requests[len(given) :]
        self._given += len(given)
        return given


def run(engine: Engine, job: Job) -> Result:
    result = Result([], [])
    if job.trickle:
        feed = Trickle(job.requests)
        for response in engine.stream(feed, result.reports.append):
            feed.finished += 1
            result.responses.append(response)
        result.takes = feed.takes
    else:
        result.responses.extend(engine.stream(IterFeed(iter(job.requests)), result.reports.append))
    return result


def mistake(config: EngineConfig) -> str | None:
    try:
        make_engine(config).check()
    except UserError as error:
        return str(error)
    return None


def all_results(jobs: Jobs) -> Results:
    mistakes = [mistake(config) for config in [jobs.config, *jobs.checked]]
    if not jobs.jobs:
        return Results({}, mistakes)
    engine = make_engine(jobs.config)
    engine.load()
    results = {job.name: run(engine, job) for job in jobs.jobs}
    engine.close()
    return Results(results, mistakes)


def main(source: str, target: str) -> None:
    jobs = msgspec.msgpack.decode(Path(source).read_bytes(), type=Jobs)
    Path(target).write_bytes(msgspec.msgpack.encode(all_results(jobs)))


if __name__ == "__main__":
    main(*sys.argv[1:])
