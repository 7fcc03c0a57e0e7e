"""Waiting for what another thread does, with a generous end."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from proctor.transfer.devices.cpu import HostEvent
from proctor.transfer.errors import Reason, TransferError

SECONDS = 30.0


def soon() -> float:
    return time.monotonic() + SECONDS


def until(true: Callable[[], bool]) -> None:
    end = soon()
    while not true():
        assert time.monotonic() < end, "it has not come true"
        time.sleep(0.002)


def reason_of(event: HostEvent) -> Reason:
    """How a request has failed."""
    with pytest.raises(TransferError) as failed:
        event.wait(soon())
    return failed.value.reason
