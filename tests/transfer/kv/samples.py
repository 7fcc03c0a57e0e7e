"""Small blocks, and a clock that tests turn."""

from __future__ import annotations

import zlib

import torch

from proctor.transfer.kv.block import Block
from proctor.transfer.kv.inbox import Received
from proctor.transfer.kv.layout import KEY, VALUE, Layout

LAYERS, HEADS, SIZE = 2, 2, 8
LAYOUT = Layout(model="tiny", dtype="F32", layers=LAYERS, heads=HEADS, head_size=SIZE)


def block(request: str, positions: int = 5, rows: int = 1, seed: int | None = None) -> Block:
    """A block that no other request has; 1 position is 256 B of keys and values a row."""
    draw = torch.Generator().manual_seed(zlib.crc32(request.encode()) if seed is None else seed)
    shape = (rows, HEADS, positions, SIZE)
    names = [name.format(layer) for layer in range(LAYERS) for name in (KEY, VALUE)]
    tensors = {name: torch.randn(shape, generator=draw) for name in names}
    tensors["logits"] = torch.randn((rows, 11), generator=draw).to(torch.bfloat16)
    tensors["delta"] = torch.tensor(positions)
    return Block(request=request, tokens=tuple(range(rows * positions)), position=positions, tensors=tensors)


def same(received: Received, sent: Block) -> bool:
    """Whether what came is what was sent, bit for bit."""
    came = received.tensors
    return (
        (received.tokens, received.position) == (sent.tokens, sent.position)
        and came.keys() == sent.tensors.keys()
        and all(came[name].dtype == one.dtype and torch.equal(came[name], one) for name, one in sent.tensors.items())
    )


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def turn(self, seconds: float) -> None:
        self.now += seconds
