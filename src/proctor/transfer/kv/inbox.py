"""What the receiver's thread knows: which requests are open, what of each is here, and when one may be used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, final

import torch

from proctor.transfer.devices.cpu import HostEvent
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.kv import wire
from proctor.transfer.kv.block import rebuilt
from proctor.transfer.kv.layout import Layout
from proctor.transfer.kv.memory import Attached
from proctor.transfer.kv.rooms import Rooms
from proctor.transfer.manifest import Manifest


class Received(NamedTuple):
    """A block that is the receiver's own: private memory, every byte proven. Its memory is used for another block when
    no tensor in it is left.

    Attributes:
        request: its id.
        tokens: token ids of the prompt, row by row.
        position: positions that the cache holds.
        tensors: everything that came, by name; CPU.
    """

    request: str
    tokens: tuple[int, ...]
    position: int
    tensors: Mapping[str, torch.Tensor]


@final
class Open:
    """A request that has been asked for.

    Attributes:
        over: set when `block` may be used, failed otherwise.
        lease: of the offer; 0 before there was one.
        block: what was copied; not to be used before `over`.
    """

    def __init__(self, request: str, rank: str) -> None:
        self.request = request
        self.over = HostEvent(f"{request}: its block has not come", rank=rank)
        self.lease = 0
        self.block: Received | None = None


@final
class Inbox:
    """Belongs to one thread.

    Args:
        layout: what every block has to look like.
        say: sends a message to the sender.
    """

    def __init__(self, layout: Layout, say: Callable[[wire.ToSender], bool]) -> None:
        self._layout, self._say = layout, say
        self._open: dict[str, Open] = {}
        self._memory: Attached | None = None
        self._rooms = Rooms()
        self.rank = ""

    @property
    def requests(self) -> tuple[str, ...]:
        """What is open."""
        return tuple(self._open)

    def attach(self, memory: Attached | None) -> None:
        """From now on blocks are read there; None: they come beside their offers."""
        self._memory = memory

    def ask(self, wanted: Open) -> None:
        """Asks for a block."""
        if wanted.request in self._open:
            wanted.over.fail(TransferError(Reason.MISMATCH, f"{wanted.request} has been asked for: one id is one try"))
            return
        self._open[wanted.request] = wanted
        self._say(wire.Fetch(wanted.request, self._memory is None))

    def give_up(self, request: str, reason: Reason, message: str) -> None:
        """This side no longer wants it; the sender is told, and frees its slots."""
        wanted = self._open.pop(request, None)
        if wanted is None:
            return
        wanted.over.fail(TransferError(reason, f"{request}: {message}", rank=self.rank))
        self._say(wire.Cancel(request, wanted.lease, reason, message))

    def offered(self, offer: wire.Offer, beside: Sequence[bytes]) -> None:
        """A block is there: copies it, proves it, and asks whether the lease still held."""
        wanted = self._open.get(offer.request)
        if wanted is None:
            self._say(wire.Cancel(offer.request, offer.lease, Reason.CANCELLED, "nobody waits for it any more"))
            return
        if wanted.lease:
            return  # a message that came twice
        wanted.lease = offer.lease
        try:
            wanted.block = self._copied(offer, beside)
        except TransferError as error:
            self.give_up(offer.request, error.reason, error.message)
        except Exception as error:  # e.g. no memory: fails its request, not the thread
            self.give_up(offer.request, Reason.EXCEPTION, f"the block could not be copied: {error!r}")
        else:
            self._say(wire.Done(offer.request, offer.lease))

    def freed(self, said: wire.Freed) -> None:
        """The lease held: what was copied is the block."""
        wanted = self._open.get(said.request)
        if wanted is not None and wanted.block is not None and wanted.lease == said.lease:
            del self._open[said.request]
            wanted.over.set()

    def gone(self, said: wire.Gone) -> None:
        """The sender has given it up."""
        wanted = self._open.get(said.request)
        if wanted is not None and (not said.lease or not wanted.lease or said.lease == wanted.lease):
            del self._open[said.request]
            wanted.over.fail(TransferError(said.reason, f"{said.request}: {said.message}", rank=said.rank))

    def fail_all(self, error: TransferError) -> None:
        """Ends every request."""
        wanted = list(self._open.values())
        self._open.clear()
        for request in wanted:
            request.over.fail(TransferError(error.reason, f"{request.request}: {error.message}", rank=error.rank))

    def _copied(self, offer: wire.Offer, beside: Sequence[bytes]) -> Received:
        manifest = Manifest.from_bytes(offer.manifest)
        if manifest.digest != offer.manifest_sha256:
            raise TransferError(Reason.CORRUPT, "the manifest is not the one that was sent")
        self._layout.check(manifest)
        lengths = [piece.nbytes for piece in offer.pieces]
        if min(lengths, default=0) < 0 or sum(lengths) != manifest.nbytes:
            raise TransferError(Reason.CORRUPT, "the pieces of the block are not as long as its manifest says")
        arena = self._rooms.take(manifest.nbytes)
        self._fill(arena, offer, beside)
        tensors = rebuilt(manifest, arena, [(piece.nbytes, piece.xxh3) for piece in offer.pieces])
        return Received(offer.request, offer.tokens, offer.position, tensors)

    def _fill(self, arena: torch.Tensor, offer: wire.Offer, beside: Sequence[bytes]) -> None:
        if offer.beside and [len(frame) for frame in beside] != [piece.nbytes for piece in offer.pieces]:
            raise TransferError(Reason.CORRUPT, "pieces beside the offer are missing or cut short")
        if not offer.beside and self._memory is None:
            raise TransferError(Reason.MISMATCH, "the block lies in memory that is not attached here")
        start = 0
        for number, piece in enumerate(offer.pieces):
            target = arena[start : start + piece.nbytes].numpy()
            if self._memory is not None and not offer.beside:
                self._memory.read(piece.slot, piece.generation, target)
            else:
                memoryview(target)[:] = beside[number]
            start += piece.nbytes
