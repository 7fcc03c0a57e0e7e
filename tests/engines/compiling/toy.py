"""A vision encoder in miniature that needs nothing but torch: an embedding, blocks, and mergers of two widths."""

from __future__ import annotations

import torch
from torch import Tensor, nn

WIDTH = 16
MERGED = 4
FLAT = 12


class Block(nn.Module):
    """Rows in, rows out."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, rows: Tensor) -> Tensor:
        """(rows, width) to the same."""
        return rows + torch.nn.functional.gelu(self.mlp(self.norm(rows)))


class Merger(nn.Module):
    """Four rows become one. One class with weights of two shapes, as Qwen3-VL's: normed before merging, or after."""

    def __init__(self, *, after: bool) -> None:
        super().__init__()
        self.after = after
        self.norm = nn.LayerNorm(WIDTH * MERGED if after else WIDTH)
        self.out = nn.Linear(WIDTH * MERGED, WIDTH)

    def forward(self, rows: Tensor) -> Tensor:
        """(rows, width) to (rows / 4, width)."""
        if self.after:
            return self.out(self.norm(rows.view(-1, WIDTH * MERGED)))
        return self.out(self.norm(rows).view(-1, WIDTH * MERGED))


class Encoder(nn.Module):
    """The whole of it."""

    def __init__(self, blocks: int = 4) -> None:
        super().__init__()
        self.embed = nn.Linear(FLAT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.merger = Merger(after=False)
        self.deep = nn.ModuleList(Merger(after=True) for _ in range(2))

    def forward(self, patches: Tensor) -> Tensor:
        """(patches, flat) to (3 * patches / 4, width)."""
        rows = self.embed(patches)
        found = []
        for number, block in enumerate(self.blocks):
            rows = block(rows)
            if number < len(self.deep):
                found.append(self.deep[number](rows))
        return torch.cat([self.merger(rows), *found])


class Model(nn.Module):
    """An encoder in a model that has more."""

    def __init__(self) -> None:
        super().__init__()
        self.visual = Encoder()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(6))

    def forward(self, patches: Tensor) -> Tensor:
        """As `Encoder`, and on."""
        rows = self.visual(patches)
        for layer in self.layers:
            rows = layer(rows)
        return rows


def patches(count: int) -> Tensor:
    """Always the same for one count."""
    return torch.randn(count, FLAT, generator=torch.Generator().manual_seed(count))


class Breaks(nn.Module):
    """Reads a number out of a tensor and goes by it: no graph can hold that."""

    def forward(self, rows: Tensor) -> Tensor:
        """(rows, width) to the same."""
        if rows.sum() > 0:
            return rows + 1
        return rows - 1


class Choosy(nn.Module):
    """Does something else for every number of rows."""

    def forward(self, rows: Tensor) -> Tensor:
        """(rows, width) to the same."""
        return rows * rows.shape[0] if rows.shape[0] % 2 == 0 else rows - rows.shape[0]
