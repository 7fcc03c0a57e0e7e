"""What goes wrong in a transfer, and at whom."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why an epoch failed."""

    MISMATCH = "mismatch"
    """The two sides do not agree: protocol, manifest, wire parameters, a number of epoch, sequence or range."""
    CORRUPT = "corrupt"
    """Bytes are not those that were sent: a checksum differs, a frame is cut short."""
    LATE = "late"
    """Nothing came within the deadline."""
    DEAD = "dead"
    """The other side has hung up or its process is gone."""
    EXCEPTION = "exception"
    """Code of this side or of the other raised: reading the source, packing, applying."""
    CANCELLED = "cancelled"
    """Somebody asked for the end."""
    EXPIRED = "expired"
    """A lease ran out before the reader came."""


class TransferError(Exception):
    """An epoch has failed, on all sides.

    Attributes:
        reason: see `Reason`.
        rank: name of the side at fault, as it gave it in its greeting; empty where it never did.
        epoch: number of the epoch; None before there was one.
        message: one line.
    """

    def __init__(self, reason: Reason, message: str, *, rank: str = "", epoch: int | None = None) -> None:
        self.reason, self.message, self.rank, self.epoch = reason, message, rank, epoch
        super().__init__(message)

    def __str__(self) -> str:
        of = f"epoch {self.epoch}: " if self.epoch is not None else ""
        at = f"{self.rank}: " if self.rank else ""
        return f"{of}{at}{self.message} ({self.reason})"

    def __reduce__(self) -> tuple[object, ...]:
        return _again, (self.reason, self.message, self.rank, self.epoch)


def _again(reason: Reason, message: str, rank: str, epoch: int | None) -> TransferError:
    return TransferError(reason, message, rank=rank, epoch=epoch)
