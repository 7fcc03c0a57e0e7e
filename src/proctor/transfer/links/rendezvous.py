"""How the ranks of a process group find each other: a store that listens where it is told to, and a roll call.

torch's own store listens on all interfaces, and a group that waits for a rank which never comes says nothing; the roll
call says who is missing before the group is made.
"""

from __future__ import annotations

import socket
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from proctor.transfer.devices.base import deadline_of, seconds_left
from proctor.transfer.errors import Reason, TransferError

if TYPE_CHECKING:
    import torch.distributed as dist

POLL_SECONDS = 0.01
"""Between two looks for those who are missing. torch's own wait leaves a broken connection behind when it is late."""


def serve(host: str = "127.0.0.1", port: int = 0, *, deadline: float | None = None) -> tuple[dist.TCPStore, int]:
    """Opens the store, on the publisher.

    Args:
        host: the only address that it listens on.
        port: 0 takes a free one.
        deadline: for every later question to the store, as seconds from now (`time.monotonic`).

    Returns:
        The store and its port.
    """
    import torch.distributed as dist

    listener = socket.create_server((host, port))
    found = int(listener.getsockname()[1])
    store = dist.TCPStore(
        host, found, is_master=True, wait_for_workers=False, timeout=_patience(deadline),
        master_listen_fd=listener.detach(),
    )  # fmt: skip
    return store, found


def join(host: str, port: int, *, deadline: float | None = None) -> dist.TCPStore:
    """Connects with the store of `serve`.

    Raises:
        TransferError: ``LATE``: there is none.
    """
    import torch.distributed as dist

    try:
        return dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=_patience(deadline))
    except dist.DistError as error:
        raise TransferError(Reason.LATE, f"no store at {host}:{port}: {error}", rank="publisher") from None


def roll_call(store: dist.Store, rank: int, names: tuple[str, ...], deadline: float | None = None) -> None:
    """Says that this rank is here, and waits until all are.

    Args:
        store: see `serve` and `join`; one name prefix for each group, or the last group's ranks count as here.
        rank: of this side.
        names: of all ranks, for the message.
        deadline: of `time.monotonic`, seconds; None is 60 s from now.

    Raises:
        TransferError: ``LATE``, at the first rank that is missing.
    """
    until = deadline_of(deadline)
    store.set(f"here/{rank}", names[rank])
    for other, name in enumerate(names):
        while not store.check([f"here/{other}"]):
            if time.monotonic() >= until:
                raise TransferError(Reason.LATE, "did not come to the roll call of its group", rank=name)
            time.sleep(POLL_SECONDS)


def _patience(deadline: float | None) -> timedelta:
    return timedelta(seconds=max(seconds_left(deadline), POLL_SECONDS))
