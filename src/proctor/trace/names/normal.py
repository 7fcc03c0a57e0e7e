"""One spelling for a kernel's name, whichever tool demangled it.

Nsight Systems and the PyTorch profiler demangle differently: ``(int)128`` and ``128``, ``(bool)0`` and ``false``,
``(unsigned long)3`` and ``3ul``, ``<unnamed>`` and ``(anonymous namespace)``, ``[lambda(float) (instance 1)]`` and
``{lambda(float)#1}``, ``char *`` and ``char*``, ``const T1 &`` and ``c10::Half const&``. All of it was read from real
traces of both. Every step below passes over the name once, so that no name, however long, is slow.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_CASTS = re.compile(
    r"\((?:(?:unsigned |signed )?(?:char|short|int|long long|long)|unsigned|(?:std::)?u?int(?:8|16|32|64)_t|size_t)\)"
    r"(?=-?\d)"
)
_BOOLS = re.compile(r"\(bool\)([01])\b")
_SUFFIXES = re.compile(r"(?<![\w.])(-?\d+)(?:ull|ul|ll|u|l)\b")
_UNNAMED = re.compile(r"<unnamed>|\{anonymous\}|\(anonymous class\)|_GLOBAL__N__\w+")
_LAMBDA = re.compile(r"\[lambda(?=\()")
_INSTANCE = re.compile(r" \(instance (\d{1,9})\)\]")
_VOID = re.compile(r"(?<![\w:])void (?=[A-Za-z_\x00])(?!const\b|volatile\b)")
_CONST = re.compile(r"\bconst ((?:unsigned |signed )?[\w:]+)(?![\w:<])(?: (int|long long|long|short|char)\b)?")
_SPACES = re.compile(r"\s+")
_TIGHT = re.compile(r" ?([*&<>(){},\[\]]) ?")
_AFTER_PARAMETERS = re.compile(r"(?: const| volatile|&)*::")

ANONYMOUS = "(anonymous namespace)"


class Parts(NamedTuple):
    """A kernel's name, taken apart."""

    function: str
    """The function with its namespaces, without template arguments, parameters and unnamed namespaces."""
    arguments: str
    """All template arguments of the function, as they stand in the normal form; empty if it is no template."""


@lru_cache(maxsize=1024)
def normalise(name: str) -> str:
    """The name in one spelling, the same for a kernel whichever tool wrote the trace.

    Casts and suffixes of integers, spelling of unnamed namespaces and lambdas, the order of ``const`` and white space
    are made one. The parameters of a template are left out, because Nsight Systems writes them as ``T1``, and they
    follow from its arguments; those of a plain function stay, since overloads differ by nothing else. A leading
    ``void`` goes. Two names with the same normal form are taken for the same kernel.

    >>> normalise("void scale<(int)4, (bool)1>(T1 *, const float *)")
    'scale<4, true>'
    >>> normalise("copy(const float *, int)")
    'copy(float const*, int)'
    """
    text = _UNNAMED.sub("\x00", _SPACES.sub(" ", _without_clones(name.strip())))
    text = text.replace(ANONYMOUS, "\x00")  # its parentheses and its space are no parameters
    text = _INSTANCE.sub(r"#\1}", _LAMBDA.sub("{lambda", text))
    text = _BOOLS.sub(lambda match: "true" if match[1] == "1" else "false", _CASTS.sub("", text))
    text = _SUFFIXES.sub(r"\1", _VOID.sub("", text))
    text = _without_parameters(_tight(_CONST.sub(_east, text)))
    return text.replace("\x00", ANONYMOUS)


def parts(name: str) -> Parts:
    """The function and the template arguments of a name.

    >>> parts("void at::native::reduce_kernel<(int)512, (int)1>(T3)")
    Parts(function='at::native::reduce_kernel', arguments='512, 1')
    """
    text = normalise(name).replace(f"{ANONYMOUS}::", "").replace(ANONYMOUS, "")
    outside: list[str] = []
    inside: list[str] = []
    depth = since = 0
    for match in re.finditer(r"[<>(]", text):
        at = match.start()
        if match[0] == "(" and depth == 0 and not text.endswith("operator", 0, at):
            outside.append(text[since:at])
            since = len(text)
            break
        if match[0] == "<":
            depth += 1
            if depth == 1:
                outside.append(text[since:at])
                since = at + 1
        elif match[0] == ">" and depth and text[at - 1] != "-":
            depth -= 1
            if depth == 0:
                inside.append(text[since:at])
                since = at + 1
    (inside if depth else outside).append(text[since:])
    return Parts("".join(outside), ", ".join(inside))


def short_name(name: str, width: int | None = 80) -> str:
    """The name for a table: no namespaces, lambdas by what they take, cut to `width` characters (None: whole).

    Different kernels may come out the same, above all once cut: never a key.

    >>> short_name("void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>>(int, T2)")
    'vectorized_elementwise_kernel<4, FillFunctor<float>>'
    """
    text = normalise(name).replace(f"{ANONYMOUS}::", "").replace("::operator()", "")
    text = re.sub(r"::\{lambda(\([^()]*\))#\d+\}", lambda match: "" if match[1] == "()" else match[1], text)
    text = _without_last_parameters(re.sub(r"\b\w+::", "", text))
    return text if width is None or len(text) <= width else text[: max(1, width - 1)] + "…"


def _without_clones(name: str) -> str:
    """The name without the marks of cloned functions (``[clone .constprop.0]``) and of AMD's code objects (``.kd``)."""
    while name.endswith("]") and (at := name.rfind("[clone ")) > 0:
        name = name[:at].rstrip()
    return name.removesuffix(".kd")


def _east(match: re.Match[str]) -> str:
    """``const X`` as ``X const``: the order of the Itanium demangler."""
    return f"{match[1]}{f' {match[2]}' if match[2] else ''} const"


def _tight(text: str) -> str:
    """White space only where it separates words and after commas."""
    text = _TIGHT.sub(r"\1", text).replace(",", ", ")
    return re.sub(r"([>)*&])(?=const\b|volatile\b)", r"\1 ", text)


def _without_parameters(text: str) -> str:
    """Drops the parameters of templates, and of every function that only encloses what the name is about."""
    opened: list[int] = []
    pieces: list[tuple[int, int]] = []
    for match in re.finditer(r"[()]", text):
        at = match.start()
        if match[0] == "(":
            opened.append(at)
        elif opened:
            start = opened.pop()
            if _is_call_operator(text, start, at):
                continue
            after = _AFTER_PARAMETERS.match(text, at + 1)
            if after:
                pieces.append((start, after.end() - 2))
            elif at == len(text) - 1 and text[:start].endswith(">"):
                pieces.append((start, at + 1))
    return _cut(text, pieces)


def _is_call_operator(text: str, start: int, end: int) -> bool:
    """Whether these parentheses belong to the name ``operator()`` itself."""
    return end == start + 1 and text.endswith("operator", 0, start)


def _cut(text: str, pieces: list[tuple[int, int]]) -> str:
    """`text` without `pieces`; one inside another counts once."""
    kept: list[str] = []
    at = 0
    for start, end in sorted(pieces):
        if end <= at:
            continue
        kept.append(text[at : max(at, start)])
        at = end
    return "".join([*kept, text[at:]])


def _without_last_parameters(text: str) -> str:
    """`text` without the parentheses at its end."""
    if not text.endswith(")"):
        return text
    depth = start = 0
    for match in re.finditer(r"[()]", text):
        if match[0] == "(":
            if depth == 0:
                start = match.start()
            depth += 1
        elif depth:
            depth -= 1
    return text[:start] if depth == 0 and start else text
