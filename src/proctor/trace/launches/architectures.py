"""What is known of GPUs without asking one: limits by compute capability, SM counts by product name.

The figures are data, in ``architectures.toml``, with their sources. A name is looked for word by word, so that
``A100-SXM4-40GB`` is an A100 and an ``A10G`` is no A10; what the table does not know is None, never a guess.
"""

from __future__ import annotations

import functools
import re
import tomllib
from importlib import resources
from typing import Any, NamedTuple

SUBPARTITIONS = 4
"""Each SM is four partitions with a quarter of the registers; source: ``cuda_occupancy.h``."""
_PART_OF_A_GPU = re.compile(r"\b(laptop|max-q|mobile|mig|grid|vgpu)\b", re.IGNORECASE)


class Architecture(NamedTuple):
    """Limits of an SM of one compute capability.

    Attributes:
        warps: most resident warps an SM.
        blocks: most resident blocks an SM.
        shared: bytes of shared memory an SM.
        block_shared: most bytes of shared memory a block can ask for, after opting in.
        confirmed: the captures whose own figures agree; empty where none has been seen.
    """

    compute: tuple[int, int]
    warps: int
    blocks: int
    shared: int
    block_shared: int
    confirmed: str


class Product(NamedTuple):
    """What a product's name says.

    Attributes:
        name: as the table has it.
        compute: compute capability.
        sm_count: streaming multiprocessors; None where products of that name differ.
        remark: which of several products is meant, where the name alone does not say; else empty.
    """

    name: str
    compute: tuple[int, int]
    sm_count: int | None
    remark: str


def architecture(compute: tuple[int, int]) -> Architecture | None:
    """The limits of a compute capability; None if the table has no such row."""
    return _architectures().get(compute)


def architectures() -> tuple[Architecture, ...]:
    """Every row of the table."""
    return tuple(_architectures().values())


def product(name: str) -> Product | None:
    """What a product's name says, e.g. ``NVIDIA A100-SXM4-40GB``, ``h100 pcie`` or ``4090``; None if it is not known.

    A part of a GPU (MIG, vGPU) and a laptop's GPU have their architecture, but not the number of SMs of the card.
    """
    words = _words(name)
    known = [found for found in _products() if _within(_words(found.name), words)]
    if not known:
        return product(f"RTX {name}") if words and re.fullmatch(r"[2-5]0\d0", words[0]) else None
    best = max(known, key=lambda found: (len(_words(found.name)), len(found.name)))
    return best._replace(sm_count=None, remark="") if _PART_OF_A_GPU.search(name) else best


def product_names() -> tuple[str, ...]:
    """The names that `product` knows."""
    return tuple(found.name for found in _products())


@functools.cache
def _data() -> dict[str, Any]:
    table = resources.files("proctor.trace.launches").joinpath("architectures.toml")
    return tomllib.loads(table.read_text(encoding="utf-8"))


@functools.cache
def _architectures() -> dict[tuple[int, int], Architecture]:
    rows = {}
    for row in _data()["architecture"]:
        compute = _compute(row["compute"])
        rows[compute] = Architecture(
            compute, row["warps"], row["blocks"], row["shared"], row["block_shared"], row.get("confirmed", "")
        )
    return rows


@functools.cache
def _products() -> tuple[Product, ...]:
    products = []
    for group in _data()["gpu"]:
        compute, remarks = _compute(group["compute"]), group.get("as", {})
        counts: dict[str, int | None] = {**group.get("sms", {}), **dict.fromkeys(group.get("unknown", []))}
        products += [Product(name, compute, count, remarks.get(name, "")) for name, count in counts.items()]
    return tuple(products)


def _compute(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)


def _words(name: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[A-Z0-9]+", name.upper()))


def _within(part: tuple[str, ...], whole: tuple[str, ...]) -> bool:
    return any(whole[at : at + len(part)] == part for at in range(len(whole) - len(part) + 1))
