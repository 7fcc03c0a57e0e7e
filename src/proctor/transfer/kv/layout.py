"""What both sides have to agree on before a block travels: which model's cache, and how it is laid out."""

from __future__ import annotations

import hashlib

import msgspec

from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.manifest import ITEM_BYTES, Manifest

KEY, VALUE = "layer.{}.key", "layer.{}.value"
"""Names of a layer's two tensors in a block's manifest."""


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The cache of one model; NIXL compares the same facts at its handshake (``nixl/metadata.py`` of vLLM).

    Attributes:
        model: says which weights, and how they are run, so far as it changes the cache (checkpoint, attention code).
        dtype: type of keys and values, a key of `proctor.transfer.manifest.ITEM_BYTES`.
        layers: how many layers have keys and values.
        heads: key-value heads of a layer.
        head_size: elements of a key.
        order: what the axes are.
    """

    model: str
    dtype: str
    layers: int
    heads: int
    head_size: int
    order: str = "row, head, position, element"

    @property
    def digest(self) -> str:
        """SHA-256 of everything above."""
        return hashlib.sha256(msgspec.msgpack.encode(self, order="deterministic")).hexdigest()

    @property
    def position_bytes(self) -> int:
        """Bytes of one position's keys and values in all layers."""
        return 2 * self.layers * self.heads * self.head_size * ITEM_BYTES[self.dtype]

    def difference(self, other: Layout) -> str:
        """In what the two differ, in words; empty if in nothing."""
        mine, yours = msgspec.structs.asdict(self), msgspec.structs.asdict(other)
        return ", ".join(
            f"{name} is {mine[name]!r} here and {yours[name]!r} there" for name in mine if mine[name] != yours[name]
        )

    def check(self, manifest: Manifest) -> None:
        """Compares a block with it: every layer's keys and values, all of one number of rows and positions.

        Raises:
            TransferError: ``MISMATCH``: a layer is missing, one too many is there, or a tensor has another form.
        """
        every = {entry.name: entry for entry in manifest.entries}
        every |= {alias: every[name] for alias, name in manifest.aliases.items()}
        entries = {name: entry for name, entry in every.items() if name.startswith("layer.")}
        names = [name.format(layer) for layer in range(self.layers) for name in (KEY, VALUE)]
        if wrong := sorted(set(names).symmetric_difference(entries)):
            raise TransferError(
                Reason.MISMATCH, f"a block of {self.layers} layers lacks these or has them too many: {', '.join(wrong)}"
            )
        forms = {(entries[name].dtype, entries[name].shape) for name in names}
        for dtype, shape in forms:
            if dtype != self.dtype or len(shape) != 4 or shape[1] != self.heads or shape[3] != self.head_size:
                raise TransferError(
                    Reason.MISMATCH,
                    f"{dtype}{list(shape)} is no {self.order} with {self.heads} heads of {self.head_size} {self.dtype}",
                )
        if len(forms) > 1:
            raise TransferError(Reason.MISMATCH, f"the layers of a block differ: {sorted(forms)}")
