"""The publishing side: one state dict to many receivers, all or nothing."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, final

import xxhash
from typing_extensions import override

from proctor.rows import UserError
from proctor.transfer.closing import Closing
from proctor.transfer.control import PUBLISHER, Address, closed
from proctor.transfer.devices.base import DEADLINE_SECONDS, Device
from proctor.transfer.devices.cpu import CpuDevice
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.links.opening import Outlet, check_transport, outlet
from proctor.transfer.manifest import ALIGN, Bucket, Manifest, aligned
from proctor.transfer.packing import Packer, Tensors
from proctor.transfer.peers import Peer, Peers
from proctor.transfer.pipeline import Pipeline, Timing
from proctor.transfer.slots import Held, Ring
from proctor.transfer.staging import Staging
from proctor.transfer.sums import rolling
from proctor.transfer.tensors import plan
from proctor.transfer.wire import PROTOCOL, Ack, Commit, Frame, Hello, Parameters, Release, Welcome

BLAME_SECONDS = 1.0
"""How long the control channels may take to say who died, when a transport broke first."""


class Receipt(NamedTuple):
    """What an epoch was.

    Attributes:
        epoch: its number.
        nbytes: of the arena, once.
        ranks: who has it.
        seconds: of all of it, greeting and acknowledgements included.
        timing: of the buckets.
    """

    epoch: int
    nbytes: int
    ranks: tuple[str, ...]
    seconds: float
    timing: Timing


@final
class Publisher(Closing):
    """Sends state dicts to the same receivers, one after another.

    An epoch that fails closes all connections; the next one makes new ones. So nothing of an old epoch can be read as
    a part of a new one.

    Args:
        receivers: where they listen: ``unix:PATH`` or ``tcp:HOST:PORT``.
        transport: a key of `proctor.transfer.links.opening.TRANSPORTS`.
        bucket_bytes: of one buffer, a multiple of 256.
        buffers: 2 let packing overlap sending; more gain nothing.
        deadline: seconds that any one wait takes at most: for a connection, a greeting, a bucket, an acknowledgement.
        device: where the buffers lie; None is the CPU.
    """

    def __init__(
        self,
        receivers: Sequence[str],
        *,
        transport: str = "stream",
        bucket_bytes: int = 16 << 20,
        buffers: int = 2,
        deadline: float = DEADLINE_SECONDS,
        device: Device | None = None,
    ) -> None:
        if not receivers:
            raise UserError("nobody to publish to", fix="give at least one receiver's address")
        if bucket_bytes < ALIGN or bucket_bytes % ALIGN:
            raise UserError(
                f"a bucket of {bucket_bytes} bytes", fix=f"take a multiple of {ALIGN}: {aligned(max(bucket_bytes, 1))}"
            )
        if deadline <= 0:
            raise UserError(f"a deadline of {deadline} s", fix="take more than 0 seconds")
        self._addresses = [Address.parse(receiver) for receiver in receivers]
        self._parameters = Parameters(bucket_bytes, buffers, ALIGN, transport)
        self._deadline, self._device = deadline, device or CpuDevice()
        self._connected: list[Peer] = []
        self._outlet: Outlet | None = None
        check_transport(transport)
        self._ring: Ring | None = None
        self._slots()  # now, so that what cannot be had is known before anybody waits
        self._staging = Staging(self._device)
        self._epoch = 0
        self._peers: Peers | None = None
        self._busy = threading.Lock()

    def publish(self, tensors: Tensors, *, manifest: Manifest | None = None) -> Receipt:
        """Sends all tensors to all receivers; when it returns, all have them.

        Args:
            tensors: a state dict, or pairs of name and tensor that are made one after another in the order of
                `manifest`. What the caller has enqueued on them (on a GPU) is waited for. They must not change until
                this returns.
            manifest: of an earlier `plan`; needed for pairs.

        Raises:
            UserError: a tensor cannot be sent.
            TransferError: the epoch has failed, on all sides; `rank` says at whom. A failure behind the release names
                who has not acknowledged; the others have the new tensors, whole.
        """
        if not self._busy.acquire(blocking=False):
            raise UserError("this publisher is publishing already", fix="wait for it, or take another publisher")
        try:
            return self._published(tensors, manifest)
        finally:
            self._busy.release()

    def cancel(self) -> None:
        """Ends the epoch that another thread is publishing; that thread gets ``CANCELLED``."""
        peers = self._peers
        if peers is not None:
            peers.fail(TransferError(Reason.CANCELLED, "cancelled by the publisher", rank=PUBLISHER, epoch=self._epoch))

    @override
    def close(self) -> None:
        """Closes the connections."""
        if self._outlet is not None:
            self._outlet.close()
        for peer in self._connected:
            closed(peer.sock)
        self._outlet, self._ring, self._connected = None, None, []

    def _published(self, tensors: Tensors, manifest: Manifest | None) -> Receipt:
        begun = time.perf_counter()
        if manifest is None:
            if not isinstance(tensors, Mapping):
                raise UserError("pairs of names and tensors without a manifest", fix="give the manifest of their plan")
            manifest, sources = plan(tensors)
            tensors = zip((entry.name for entry in manifest.entries), sources, strict=True)
        packer = Packer(manifest, tensors)
        self._epoch += 1
        with self._epoch_open() as peers:
            ranks = self._greeted(peers, manifest)
            timing = self._sent(peers, manifest, packer, ranks)
        return Receipt(self._epoch, manifest.nbytes, ranks, time.perf_counter() - begun, timing)

    @contextlib.contextmanager
    def _epoch_open(self) -> Iterator[Peers]:
        self._connect()
        peers = self._peers = Peers(self._connected, self._epoch)
        try:
            yield peers
        except BaseException as error:
            told = self._told(peers, error)
            peers.close(told)
            self.close()
            if told is error or isinstance(error, UserError) or not isinstance(error, Exception):
                raise
            raise told from error
        finally:
            self._peers = None
        peers.close()

    def _told(self, peers: Peers, error: BaseException) -> TransferError:
        """The error as all sides get it: with the epoch, and with the rank at fault."""
        if isinstance(error, TransferError):
            told = peers.blamed(error, BLAME_SECONDS)
        elif isinstance(error, Exception):
            told = self._error(Reason.EXCEPTION, f"{type(error).__name__}: {error}", PUBLISHER)
        else:
            told = self._error(Reason.CANCELLED, f"ended by {type(error).__name__}", PUBLISHER)
        return told

    def _connect(self) -> None:
        if any(peer.gone for peer in self._connected):
            self.close()
        if self._connected:
            return
        deadline = time.monotonic() + self._deadline
        try:
            for address in self._addresses:
                self._connected.append(Peer(address, deadline))
            self._outlet = outlet(self._parameters.transport, self._connected, self._deadline)
        except BaseException:
            self.close()
            raise

    def _greeted(self, peers: Peers, manifest: Manifest) -> tuple[str, ...]:
        assert self._outlet is not None
        digest, data = manifest.digest, manifest.to_bytes()
        peers.send(
            Hello(PROTOCOL, self._epoch, digest, data, self._parameters, self._deadline, ticket)
            for ticket in self._outlet.tickets()
        )
        welcomes = peers.collect(Welcome, "a welcome", time.monotonic() + self._deadline)
        for peer, welcome in zip(self._connected, welcomes, strict=True):
            peer.rank = welcome.rank
            if (welcome.protocol, welcome.manifest_sha256, welcome.parameters) != (PROTOCOL, digest, self._parameters):
                raise self._error(Reason.MISMATCH, "understood another manifest or other parameters", welcome.rank)
        ranks = tuple(welcome.rank for welcome in welcomes)
        twice = sorted({rank for rank in ranks if ranks.count(rank) > 1})
        if twice:
            raise self._error(Reason.MISMATCH, "two receivers have this name", twice[0])
        return ranks

    def _sent(self, peers: Peers, manifest: Manifest, packer: Packer, ranks: tuple[str, ...]) -> Timing:
        assert self._outlet is not None
        sums: list[int] = []

        def pack(bucket: Bucket, held: Held) -> int:
            packer.pack(bucket, held, lambda: held.stream.wait(self._device.ready()))
            return xxhash.xxh3_64_intdigest(
                self._staging.bytes(held, bucket.nbytes, time.monotonic() + self._deadline, peers.check)
            )

        def announce(bucket: Bucket, checksum: int) -> None:
            sums.append(checksum)
            place = (bucket.sequence, bucket.start, bucket.nbytes, bucket.first, bucket.count)
            peers.broadcast(Frame(self._epoch, *place, checksum))

        buckets = manifest.buckets(self._parameters.bucket_bytes)
        pipeline = Pipeline(
            self._slots(), self._outlet.link(peers, ranks),
            pack=pack, announce=announce, watch=peers.check, patience=self._deadline,
        )  # fmt: skip
        timing = pipeline.run(buckets)
        packer.finish()
        peers.broadcast(Commit(self._epoch, len(buckets), rolling(manifest.digest, sums)))
        self._acknowledged(peers, "prepared")
        peers.broadcast(Release(self._epoch))
        self._acknowledged(peers, "committed")
        return timing

    def _acknowledged(self, peers: Peers, state: str) -> None:
        acks = peers.collect(Ack, f"{state!r}", time.monotonic() + self._deadline)
        for peer, ack in zip(self._connected, acks, strict=True):
            if (ack.state, ack.rank) != (state, peer.rank):
                raise self._error(Reason.MISMATCH, f"{ack.rank} acknowledged {ack.state!r}, not {state!r}", peer.rank)

    def _slots(self) -> Ring:
        """The slots of all epochs, until one fails: a transport that hangs may still read those."""
        if self._ring is None:
            self._ring = Ring(self._device, self._parameters.bucket_bytes, self._parameters.buffers)
        return self._ring

    def _error(self, reason: Reason, message: str, rank: str) -> TransferError:
        return TransferError(reason, message, rank=rank, epoch=self._epoch)
