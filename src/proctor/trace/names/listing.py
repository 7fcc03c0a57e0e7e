"""The names of a whole trace: its time by kind of work with the rules that say so, its risks, its launches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from proctor.trace.launches.kernel_choice import NAME, Kernel, kernels_of
from proctor.trace.names.decoded import Launch
from proctor.trace.names.lineup import OTHER, LineUp, line_up
from proctor.trace.names.risks import Answer, Risk, Risks, risks_of

if TYPE_CHECKING:
    from proctor.trace.trace import Trace


class RuleLine(msgspec.Struct, frozen=True):
    """What one rule of the line-up placed.

    Attributes:
        rule: its id; empty for kernels that no rule fits.
        why: what the rule says of them.
        origin: ``built in``, or the user's file.
        launches: of all its kernels.
        total: ns, added up.
        kernels: demangled names, the most expensive first.
    """

    rule: str
    why: str
    origin: str
    launches: int
    total: int
    kernels: tuple[str, ...]


class CategoryLine(msgspec.Struct, frozen=True):
    """One kind of work.

    Attributes:
        category: its name.
        meaning: in words; empty for a category that a user's file does not describe.
        launches: of all its kernels.
        total: ns, added up.
        share: of the time of all kernels, 0 to 1.
        rules: that placed kernels here, the most time first.
    """

    category: str
    meaning: str
    launches: int
    total: int
    share: float
    rules: tuple[RuleLine, ...]


class Kinds(msgspec.Struct, frozen=True):
    """A trace's time by kind of work.

    Attributes:
        lines: the most time first.
        launches: of all kernels.
        total: ns of all kernels, added up: kernels that ran at the same time count twice.
        placed: share of `total` that a rule placed, 0 to 1.
    """

    lines: tuple[CategoryLine, ...]
    launches: int
    total: int
    placed: float


class RiskLine(msgspec.Struct, frozen=True):
    """One kernel and what is known of its determinism.

    Attributes:
        kernel: demangled name.
        category: what the line-up says.
        launches: in the whole trace.
        total: ns, added up.
        share: of the time of all kernels, 0 to 1.
        risks: both answers.
    """

    kernel: str
    category: str
    launches: int
    total: int
    share: float
    risks: Risks


class RiskTable(msgspec.Struct, frozen=True):
    """The risks of a trace: read from names, so never a verdict.

    Attributes:
        lines: every kernel, the most time first.
        total: ns of all kernels, added up.
        run_to_run, batch_invariant: share of `total` by answer.
        clues: share of `total` by clue: ``split-K``, ``split-KV``, ``merge``, ``NVLS``, ``atomics``.
    """

    lines: tuple[RiskLine, ...]
    total: int
    run_to_run: dict[str, float]
    batch_invariant: dict[str, float]
    clues: dict[str, float]

    def summary(self) -> str:
        """Two sentences: how much time stands where, and what that does not mean."""
        return (
            f"Run to run, {_shares(self.run_to_run)}; across batches, {_shares(self.batch_invariant)}. These are risks "
            "read from kernels' names, not verdicts: whether outputs differ takes an experiment."
        )


class Configuration(msgspec.Struct, frozen=True):
    """One way a kernel was launched.

    Attributes:
        launch: block, grid, shared memory, cluster, registers.
        launches: how often.
        total: ns, added up.
    """

    launch: Launch
    launches: int
    total: int


def kinds_of(trace: Trace, rules: LineUp | None = None) -> Kinds:
    """The trace's time by kind of work, as `rules` (the built-in ones by default) place its kernels.

    Raises:
        UserError: the trace has no kernels.
    """
    used = rules or line_up()
    placed: dict[str, dict[str, list[Kernel]]] = {}
    kernels = kernels_of(trace)
    for kernel in kernels:
        place = used.place(kernel.name)
        placed.setdefault(place.category, {}).setdefault(place.rule, []).append(kernel)
    total = _total(kernels)
    lines = [
        CategoryLine(
            category,
            used.categories.get(category, ""),
            sum(kernel.launches for group in by_rule.values() for kernel in group),
            (time := sum(kernel.total for group in by_rule.values() for kernel in group)),
            _share(time, total),
            tuple(sorted((_rule_line(used, id_, group) for id_, group in by_rule.items()), key=lambda r: -r.total)),
        )
        for category, by_rule in placed.items()
    ]
    other = next((line.total for line in lines if line.category == OTHER), 0)
    return Kinds(
        tuple(sorted(lines, key=lambda line: (-line.total, line.category))),
        sum(kernel.launches for kernel in kernels),
        total,
        _share(total - other, total),
    )


def risks_in(trace: Trace) -> RiskTable:
    """What is known of the determinism of every kernel of the trace.

    Raises:
        UserError: the trace has no kernels.
    """
    kernels = kernels_of(trace)
    total = _total(kernels)
    lines = [
        RiskLine(
            kernel.name,
            line_up().place(kernel.name).category,
            kernel.launches,
            kernel.total,
            _share(kernel.total, total),
            risks_of(kernel.name),
        )
        for kernel in kernels
    ]
    return RiskTable(
        tuple(lines),
        total,
        _by(((line.risks.run_to_run.answer.value, line.total) for line in lines), total),
        _by(((line.risks.batch_invariant.answer.value, line.total) for line in lines), total),
        _by(((line.risks.clue, line.total) for line in lines if line.risks.clue), total),
    )


def configurations_of(trace: Trace, kernel: Kernel) -> list[Configuration]:
    """The ways `kernel` was launched, the most time first."""
    columns = (
        "block_x, block_y, block_z, grid_x, grid_y, grid_z, cluster_x, cluster_y, cluster_z, static_shared, "
        "dynamic_shared, registers"
    )
    rows = trace.rows(
        f'SELECT {columns}, count(*), sum(COALESCE("end" - start, 0)) AS total FROM kernels WHERE {NAME} = ? '
        f"GROUP BY {columns} ORDER BY total DESC, {columns}",
        (kernel.id,),
    )
    return [
        Configuration(
            Launch(
                block=_three(row[0:3]),
                grid=_three(row[3:6]),
                cluster=_three(row[6:9]),
                static_shared=row[9],
                dynamic_shared=row[10],
                registers=row[11],
            ),
            row[12],
            row[13],
        )
        for row in rows
    ]


def reason_of(risks: Risks) -> str:
    """Why the answers are not both yes, in one line; why they are, if they are."""
    telling = [risk for risk in (risks.run_to_run, risks.batch_invariant) if risk.answer is not Answer.YES]
    reasons = dict.fromkeys(_reason(risk) for risk in telling or [risks.batch_invariant])
    return "; ".join(reasons)


def _reason(risk: Risk) -> str:
    return risk.reason if risk.basis == "stated" else f"{risk.reason} (reasoned)"


def _rule_line(rules: LineUp, id_: str, kernels: list[Kernel]) -> RuleLine:
    rule = rules.rule(id_)
    return RuleLine(
        id_,
        rule.why if rule else "no rule fits",
        rule.origin if rule else "",
        sum(kernel.launches for kernel in kernels),
        _total(kernels),
        tuple(kernel.name for kernel in kernels),
    )


def _total(kernels: Iterable[Kernel]) -> int:
    return sum(kernel.total for kernel in kernels)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _by(pairs: Iterable[tuple[str, int]], total: int) -> dict[str, float]:
    """Shares of `total` by key, the largest first."""
    found: dict[str, int] = {}
    for key, value in pairs:
        found[key] = found.get(key, 0) + value
    return {key: _share(value, total) for key, value in sorted(found.items(), key=lambda item: (-item[1], item[0]))}


def _three(values: tuple[int | None, ...]) -> tuple[int, int, int] | None:
    x, y, z = values
    return None if x is None or y is None or z is None else (x, y, z)


def _shares(shares: dict[str, float]) -> str:
    return ", ".join(f"{share:.1%} of kernel time {answer}" for answer, share in shares.items()) or "no kernels"
