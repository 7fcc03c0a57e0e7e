"""Shared by all tests: one thread for every numeric library, no network for model hubs, one Ray, one browser."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.chromium import launched

if TYPE_CHECKING:
    from playwright.sync_api import Browser

settings.register_profile("proctor", deadline=None)  # a loaded machine is no failure
settings.load_profile("proctor")

# Whoever starts the tests in the background has SIGINT ignored, and every child would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_kill_child_processes_on_worker_exit", "false")
# With an empty cache inductor would compile programs first that show whether this processor's vectors work: half the
# time of a test that compiles a little. A compiler that cannot do them fails these tests all the same.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take longest first, or one process would be busy with them after all others have ended: those with a
    real model, and of the others the ones whose tests may take longest."""
    weights: dict[Path, tuple[bool, float]] = {}
    for item in items:
        real, limit = weights.get(item.path, (False, 0.0))
        real = real or any(item.get_closest_marker(name) for name in ("model", "vllm"))
        given = item.get_closest_marker("timeout")
        weights[item.path] = real, max(limit, given.args[0] if given is not None else 0.0)
    items.sort(key=lambda item: weights[item.path], reverse=True)


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """One Ray for all tests that run in this process; runs find it up and leave it up."""
    import logging
    import warnings

    import ray

    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Ends with its file: as long as it is there, Playwright's event loop counts as running for whoever asks."""
    with launched() as found:
        yield found
