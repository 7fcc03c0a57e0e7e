"""What a launch confirms or denies of a name."""

from __future__ import annotations

from proctor.trace.names.decoded import Launch, Reading

REST = 32_768
"""Bytes beside the tiles (barriers, staging of the result, padding) up to which the arithmetic counts as confirmed; the
largest rest seen is 17,048 bytes."""


def tiles(
    reading: Reading,
    launch: Launch,
    shape: tuple[int, int, int],
    stages: int,
    width: int | None,
    halved: str = "",
) -> None:
    """Compares shared memory with the tiles of A and B: (M + N) * K * stages * bytes of an element.

    `halved` says why N is half of what the name says.
    """
    have = launch.shared
    if have is None or width is None:
        return
    m, n, k = shape
    need = (m + n) * k * stages * width
    formula = f"({m} + {n}) * {k} * {stages} * {width} B = {need:,} B{f' ({halved})' if halved else ''}"
    if 0 <= have - need <= REST:
        reading.compare(
            True, f"tiles of A and B take {formula} of {have:,} B of shared memory; {have - need:,} B are left"
        )
    else:
        reading.compare(False, f"tiles of A and B take {formula}, but a block of the launch has {have:,} B")


def warps(reading: Reading, launch: Launch, count: int, formula: str) -> None:
    """Compares the threads of a block with a number of warps."""
    have = launch.threads
    if have is None:
        return
    line = f"{formula} = {count} warps, {count * 32:,} threads; the launch has {have:,} threads a block"
    reading.compare(have == count * 32, line)


def threads(reading: Reading, launch: Launch, count: int, what: str) -> None:
    """Compares the threads of a block with a number in the name."""
    have = launch.threads
    if have is not None:
        reading.compare(have == count, f"{what}: {count:,} threads a block; the launch has {have:,}")


def cluster(reading: Reading, launch: Launch, expected: tuple[int, int], why: str = "") -> None:
    """Compares the cluster of the launch with the one in the name. Zeros in a trace mean: no cluster."""
    if launch.cluster is None:
        return
    x, y, _ = launch.cluster
    have = (max(x, 1), max(y, 1))
    says = f"the name says {expected[0]} x {expected[1]}{why}"
    reading.compare(have == expected, f"the launch's cluster is {have[0]} x {have[1]}; {says}")
