"""What the workbench is asked to measure. No torch here: a mistake is told before anything is loaded."""

from __future__ import annotations

import msgspec

from proctor.rows import UserError

DTYPES = ("float64", "float32", "bfloat16", "float16")


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """Of the comparison of ways to compute attention.

    Attributes:
        dtypes: number formats.
        lengths: keys.
        prefixes: where a prefix ends; one that is not shorter than the keys before the queries is left out.
        splits: into how many parts split-KV cuts the keys.
        chunks: queries in a chunk of a chunked prefill.
        queries: of a step that extends a prompt.
        prefill: queries of a prefill, all at once or in chunks; no more than the keys.
        heads, dim: attention heads, and numbers in each.
        seed: of the random inputs, which are standard normal.
        device: for torch.
    """

    dtypes: tuple[str, ...] = ("float32", "bfloat16", "float16")
    lengths: tuple[int, ...] = (640, 2048)
    prefixes: tuple[int, ...] = (512, 1024)
    splits: tuple[int, ...] = (2, 8)
    chunks: tuple[int, ...] = (64,)
    queries: int = 64
    prefill: int = 128
    heads: int = 16
    dim: int = 128
    seed: int = 0
    device: str = "cpu"


class Depth(msgspec.Struct, frozen=True, kw_only=True):
    """Of the random decoder.

    Attributes:
        dtypes: number formats.
        layers, heads, dim, vocabulary: of the decoder; its width is ``heads * dim``.
        prefix: tokens that all prompts share; split attention is split there.
        prompts: how many.
        positions: tokens of each prompt after the prefix.
        steps: tokens that each prompt then generates greedily.
        seed, device: as in `Sizes`.
    """

    dtypes: tuple[str, ...] = ("float32", "bfloat16", "float16")
    layers: int = 28
    heads: int = 4
    dim: int = 64
    vocabulary: int = 2048
    prefix: int = 256
    prompts: int = 3
    positions: int = 16
    steps: int = 8
    seed: int = 0
    device: str = "cpu"


FULL_SIZES = Sizes(dtypes=DTYPES, lengths=(500, 640, 4096), prefixes=(400, 512, 2048))
FULL_DEPTH = Depth(heads=8, vocabulary=8192, prompts=5, positions=32, steps=16)
"""Larger ones, for which the documentation has figures: about a minute on one CPU thread."""


def check_counts(asked: Sizes | Depth) -> None:
    """Looks at number formats and at every count.

    Raises:
        UserError: names what cannot be.
    """
    for dtype in asked.dtypes:
        if dtype not in DTYPES:
            raise UserError(f"{dtype!r} is no number format here", where="dtypes", fix=f"one of {', '.join(DTYPES)}")
    for name, value in msgspec.structs.asdict(asked).items():
        least = 0 if name in ("seed", "steps") else 1
        values = value if isinstance(value, tuple) else (value,)
        if any(isinstance(number, int) and number < least for number in values):
            raise UserError(f"{min(values)} is too small", where=name, fix=f"{least} or more")
    if isinstance(asked, Sizes) and asked.queries > min(asked.lengths):
        raise UserError(
            f"{asked.queries} queries need as many keys, but a length is {min(asked.lengths)}",
            where="queries",
            fix="fewer queries, or longer",
        )


def left_out(sizes: Sizes) -> list[str]:
    """What `sizes` asks for and nothing is measured at, in words."""
    room, queries = max(sizes.lengths) - 1, min(sizes.prefill, max(sizes.lengths))
    words = [f"prefix {prefix}: no length has room for it" for prefix in sizes.prefixes if prefix > room]
    words += [f"chunk {chunk}: the prefill has {queries} queries" for chunk in sizes.chunks if chunk >= queries]
    return words
