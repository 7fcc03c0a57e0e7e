"""Takes template arguments apart. Nothing here recurses, so a name nested a thousand deep does no harm."""

from __future__ import annotations

import re

_OPEN, _CLOSE = "<({[", ">)}]"


def arguments(text: str) -> list[str]:
    """The arguments between the top-level commas of `text`.

    >>> arguments("4, std::array<char*, 3>, true")
    ['4', 'std::array<char*, 3>', 'true']
    """
    found: list[str] = []
    depth = since = 0
    for match in re.finditer(r"[<({\[>)}\],]", text):
        if match[0] in _OPEN:
            depth += 1
        elif match[0] in _CLOSE:
            depth = max(0, depth - 1)
        elif depth == 0:
            found.append(text[since : match.start()].strip())
            since = match.end()
    last = text[since:].strip()
    return [*found, last] if last or found else []


def inside(text: str, name: str) -> list[str] | None:
    """The template arguments of the first ``name<...>`` in `text`, whatever its namespaces; None if there is none.

    >>> inside("flash::kernel<Traits<128, 64>, true>", "Traits")
    ['128', '64']
    """
    match = re.search(rf"(?<!\w){re.escape(name)}<", text)
    if match is None:
        return None
    depth = 1
    for bracket in re.finditer(r"[<>]", text[match.end() :]):
        depth += 1 if bracket[0] == "<" else -1
        if depth == 0:
            return arguments(text[match.end() : match.end() + bracket.start()])
    return None


def integers(text: str) -> list[int]:
    """The constants of a CuTe shape: ``cute::tuple<cute::C<128>, cute::C<64>>`` gives 128, 64."""
    return [int(number) for number in re.findall(r"\b(?:C|constant)<(?:int, )?(\d{1,9})>", text)]


def plain(name: str) -> str:
    """A type without its namespaces: ``cutlass::bfloat16_t`` is ``bfloat16_t``."""
    return re.sub(r"\b\w+::", "", name)


_WIDTHS = {
    "bf16": 2, "bfloat16_t": 2, "__nv_bfloat16": 2, "BFloat16": 2, "f16": 2, "fp16": 2, "half_t": 2, "__half": 2,
    "half": 2, "Half": 2, "f32": 4, "float": 4, "tf32": 4, "tfloat32_t": 4, "f64": 8, "double": 8, "s8": 1, "u8": 1,
    "e4m3": 1, "e5m2": 1, "float_e4m3_t": 1, "float_e5m2_t": 1, "fp8": 1,
}  # fmt: skip


def width_of(type_: str) -> int | None:
    """Bytes of an element of that type, None if it is not known."""
    return _WIDTHS.get(plain(type_))


def yes_no(flag: str) -> str:
    """A template's flag in words."""
    return {"true": "yes", "false": "no", "1": "yes", "0": "no"}.get(flag, flag)
