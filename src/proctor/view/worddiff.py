"""What two answers have in common, word by word, in bounded time and memory whatever they say.

The shortest script of removed and added words is found greedily (E. W. Myers 1986, "An O(ND) difference algorithm and
its variations", section 4). Where that takes more than `MOST_STEPS` words, what lies between the common beginning and
the common end counts as replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

MOST_STEPS = 250
"""Most removed and added words that are looked for; time and memory grow with its square."""
_WORD = re.compile(r"(?:[^\W\d_]+|\d+(?:\.\d+)?|\S)\s*|\s+")
"""A word, a number or a sign, with the space behind it: a space alone is nothing in common."""

Kind = Literal["same", "gone", "new"]


class Piece(NamedTuple):
    """A stretch of text: in both, in the first alone (``gone``) or in the second alone (``new``)."""

    kind: Kind
    text: str


def word_diff(before: str, after: str) -> list[Piece]:
    """The pieces of both texts in order: without ``new`` they are `before`, without ``gone`` they are `after`."""
    a, b = _WORD.findall(before), _WORD.findall(after)
    start = _common(a, b)
    end = _common(a[start:][::-1], b[start:][::-1])
    inner_a, inner_b = a[start : len(a) - end], b[start : len(b) - end]
    kinds = [
        *(("same", word) for word in a[:start]),
        *_script(inner_a, inner_b),
        *(("same", word) for word in a[len(a) - end :]),
    ]
    return list(_joined(kinds))


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """How many words both begin with."""
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _script(a: Sequence[str], b: Sequence[str]) -> list[tuple[Kind, str]]:
    trace = _trace(a, b) if a and b else None
    if trace is None:
        return [*(("gone", word) for word in a), *(("new", word) for word in b)]
    return _backwards(a, b, trace)


def _trace(a: Sequence[str], b: Sequence[str]) -> list[dict[int, int]] | None:
    """How far each diagonal (words of `a` minus words of `b` that are used up) was reached before each step; None if
    the end was not reached in `MOST_STEPS`."""
    reached, trace = {1: 0}, list[dict[int, int]]()
    for step in range(min(MOST_STEPS, len(a) + len(b)) + 1):
        trace.append(dict(reached))
        for diagonal in range(-step, step + 1, 2):
            x = _begin(reached, diagonal, step)
            while x < len(a) and x - diagonal < len(b) and a[x] == b[x - diagonal]:
                x += 1
            reached[diagonal] = x
            if x >= len(a) and x - diagonal >= len(b):
                return trace
    return None


def _is_down(reached: dict[int, int], diagonal: int, step: int) -> bool:
    """Whether the step onto a diagonal adds a word of `b`, from the diagonal above; else it leaves one of `a` out."""
    return diagonal == -step or (diagonal != step and reached[diagonal - 1] < reached[diagonal + 1])


def _begin(reached: dict[int, int], diagonal: int, step: int) -> int:
    """How many words of `a` are used up right after that step."""
    return reached[diagonal + 1] if _is_down(reached, diagonal, step) else reached[diagonal - 1] + 1


def _backwards(a: Sequence[str], b: Sequence[str], trace: list[dict[int, int]]) -> list[tuple[Kind, str]]:
    """The script, from the end to the beginning, turned round."""
    found: list[tuple[Kind, str]] = []
    x, y = len(a), len(b)
    for step in range(len(trace) - 1, -1, -1):
        reached, diagonal = trace[step], x - y
        begin = _begin(reached, diagonal, step)
        while x > begin and y > begin - diagonal:
            x, y = x - 1, y - 1
            found.append(("same", a[x]))
        if step == 0:
            break
        if _is_down(reached, diagonal, step):
            y -= 1
            found.append(("new", b[y]))
        else:
            x -= 1
            found.append(("gone", a[x]))
    return found[::-1]


def _joined(words: Sequence[tuple[Kind, str]]) -> Iterator[Piece]:
    """Neighbours of the same kind as one piece; among changed words, what is gone stands before what is new."""
    texts: dict[Kind, list[str]] = {"same": [], "gone": [], "new": []}
    for kind, word in words:
        if kind == "same":
            yield from _pieces(texts, "gone", "new")
        else:
            yield from _pieces(texts, "same")
        texts[kind].append(word)
    yield from _pieces(texts, "same", "gone", "new")


def _pieces(texts: dict[Kind, list[str]], *kinds: Kind) -> Iterator[Piece]:
    for kind in kinds:
        if texts[kind]:
            yield Piece(kind, "".join(texts[kind]))
            texts[kind] = []
