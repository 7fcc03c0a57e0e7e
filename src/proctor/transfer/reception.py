"""One epoch on the receiving side, step by step: greeting, buckets, the two-phase end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, final

import xxhash

from proctor.transfer.control import Channel
from proctor.transfer.destinations import Destination
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.links.base import Link
from proctor.transfer.manifest import ALIGN, Bucket, Manifest
from proctor.transfer.staging import Staging
from proctor.transfer.sums import rolling
from proctor.transfer.wire import PROTOCOL, Ack, Began, Commit, Frame, Hello, Parameters, Release, Welcome

if TYPE_CHECKING:
    import torch

MOST_BUFFERS = 1024
_Message = TypeVar("_Message", Frame, Commit, Release)


@final
class Reception:
    """Takes one epoch. The steps are called in their order; after an error none is.

    Args:
        hello: what began it.
        channel: to the publisher.
        rank: of this side.
        destination: takes the bytes.
        staging: of the destination's device.
        patience: seconds that one wait takes at most.
    """

    def __init__(
        self, hello: Hello, channel: Channel, rank: str, destination: Destination, staging: Staging, patience: float
    ) -> None:
        self._hello, self._channel, self._rank = hello, channel, rank
        self._destination, self._staging, self._patience = destination, staging, patience
        self._sums: list[int] = []

    def accept(self, transports: Sequence[str], last: int) -> Manifest:
        """Compares what is announced with what is wanted, makes room, and welcomes the publisher.

        Args:
            transports: those that are taken.
            last: number of the last epoch on this connection.

        Raises:
            TransferError: ``MISMATCH``.
        """
        hello, parameters = self._hello, self._hello.parameters
        wrong = ""
        if hello.protocol != PROTOCOL:
            wrong = f"protocol {hello.protocol}, and this is {PROTOCOL}"
        elif hello.epoch <= last:
            wrong = f"epoch {hello.epoch} after epoch {last}"
        elif parameters.transport not in transports:
            wrong = f"transport {parameters.transport}, and here only {', '.join(transports)} is taken"
        elif parameters.align != ALIGN or parameters.bucket_bytes % ALIGN or not _sane(parameters):
            wrong = f"wire parameters {parameters}"
        if wrong:
            raise TransferError(Reason.MISMATCH, wrong)
        manifest = Manifest.from_bytes(hello.manifest)
        if manifest.digest != hello.manifest_sha256:
            raise TransferError(Reason.MISMATCH, "the manifest has another SHA-256 than was announced")
        self._destination.prepare(manifest, parameters)
        self._say(Welcome(self._rank, PROTOCOL, hello.epoch, manifest.digest, parameters))
        return manifest

    def take(self, manifest: Manifest, link: Callable[[], Link]) -> None:
        """Receives, checks and puts all buckets, and waits until they are in their places.

        Args:
            manifest: of `accept`.
            link: opens the transport; called when the first bucket is announced.

        Raises:
            TransferError: see `Reason`.
        """
        for bucket in manifest.buckets(self._hello.parameters.bucket_bytes):
            frame = self._hear(Frame)
            place = (frame.sequence, frame.start, frame.nbytes, frame.first, frame.count)
            if place != (bucket.sequence, bucket.start, bucket.nbytes, bucket.first, bucket.count):
                raise TransferError(Reason.MISMATCH, f"bucket {frame.sequence} came where {bucket.sequence} was due")
            self._say(Began(self._hello.epoch, bucket.sequence))
            self._bucket(bucket, frame.xxh3, link())
        commit = self._hear(Commit)
        if (commit.count, commit.rolling) != (len(self._sums), rolling(manifest.digest, self._sums)):
            raise TransferError(Reason.CORRUPT, f"{len(self._sums)} buckets came, and others were sent")
        self._destination.finish(self._until)

    def commit(self) -> dict[str, torch.Tensor]:
        """Tells that all is here, waits until it is so on all sides, and makes it readable.

        Raises:
            TransferError: see `Reason`.
        """
        self._say(Ack(self._hello.epoch, self._rank, "prepared"))
        self._hear(Release)
        return self._destination.commit()

    def confirm(self) -> None:
        """Tells that it is readable.

        Raises:
            TransferError: nobody heard it; it is readable nevertheless, as all sides have it.
        """
        self._say(Ack(self._hello.epoch, self._rank, "committed"))

    @property
    def _until(self) -> float:
        return time.monotonic() + self._patience

    def _bucket(self, bucket: Bucket, checksum: int, link: Link) -> None:
        until = self._until
        with self._destination.slot(bucket, until) as held:
            link.receive(held, bucket.nbytes, until)
            data = self._staging.bytes(held, bucket.nbytes, until, self._channel.watch)
            if xxhash.xxh3_64_intdigest(data) != checksum:
                raise TransferError(Reason.CORRUPT, f"bucket {bucket.sequence} has another checksum than was sent")
            self._destination.take(bucket, held)
        self._sums.append(checksum)

    def _say(self, message: Welcome | Began | Ack) -> None:
        self._channel.send(message, self._until)

    def _hear(self, kind: type[_Message]) -> _Message:
        message = self._channel.receive(self._until)
        if not isinstance(message, kind):
            raise TransferError(Reason.MISMATCH, f"{type(message).__name__} came where {kind.__name__} was due")
        if message.epoch != self._hello.epoch:
            raise TransferError(Reason.MISMATCH, f"{kind.__name__} of epoch {message.epoch}, which is another one")
        return message


def _sane(parameters: Parameters) -> bool:
    return parameters.bucket_bytes > 0 and 0 < parameters.buffers <= MOST_BUFFERS
