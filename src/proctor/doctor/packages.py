"""Whether what Proctor needs is installed beside it, in versions that it works with."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import metadata

from packaging.requirements import Requirement

from proctor.doctor.findings import Finding
from proctor.doctor.versions import facts_here, missed_by, shortcoming
from proctor.engines.config import environment
from proctor.spec import RunSpec


def look_at_packages() -> Iterator[Finding]:
    """Proctor's own requirements, as its package declares them."""
    python = platform.python_version()
    yield Finding("python", "python", "ok", python)
    try:
        version, declared = metadata.version("proctor"), metadata.requires("proctor") or []
    except metadata.PackageNotFoundError:
        yield Finding("python", "proctor", "warning", "is not installed, it only lies on the path", "pip install .")
        return
    yield Finding("python", "proctor", "ok", version)
    wrong = list(_wrong([Requirement(text) for text in declared]))
    yield from wrong
    if not wrong:
        yield Finding("python", "packages", "ok", "what Proctor requires is there, in versions that it works with")


def look_at_requires(spec: RunSpec) -> Iterator[Finding]:
    """What the spec insists on."""
    python = environment(spec.engine)[0]
    missed = missed_by(spec, facts_here(spec))
    for one in missed:
        error = shortcoming(one, "here", python)
        yield Finding("python", f"requires.{one.package}", "missing", error.what, error.fix or "")
    if spec.requires and not missed:
        yield Finding("python", "requires", "ok", f"all {len(spec.requires)} of the spec are met")


def _wrong(declared: list[Requirement]) -> Iterator[Finding]:
    for requirement in declared:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        wanted = f"{requirement.name}{requirement.specifier}"
        fix = f"pip install '{_with_extras(requirement)}'"
        try:
            found = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            yield Finding("python", requirement.name, "missing", f"not installed; Proctor needs {wanted}", fix)
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            yield Finding("python", requirement.name, "missing", f"{found}; Proctor needs {wanted}", fix)


def _with_extras(requirement: Requirement) -> str:
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}{requirement.specifier}"
