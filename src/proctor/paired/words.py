"""What is said of a comparison, in words and numbers, wherever it is shown."""

from __future__ import annotations

from proctor.paired.model import Change, Comparison, Measure


def sentence(found: Comparison, change: Change | None) -> str:
    """The result in one sentence."""
    sides = f"{found.b} against {found.a}"
    if change is None:
        return f"{sides}: the task has no metric that rows have one by one"
    name = change.measure.name
    if not change.n or change.difference is None:
        return f"{sides}: no row has {name} on both sides"
    over = f"over {change.n:,} {'row' if change.n == 1 else 'rows'}"
    size = size_of(change.difference, change.measure)
    if change.moved == "no":
        seen = "" if change.detectable is None else (
            f"; a true difference of {size_of(change.detectable, change.measure, sign=False)} would be seen in 80 % of "
            "the cases"
        )  # fmt: skip
        return f"{sides}: no difference of {name} found {over} ({size}, {interval_of(change)}{seen})"
    by = size_of(change.difference, change.measure, sign=change.moved == "changed")
    tested = "" if change.p is None or change.measure.form != "share" else f", p {p_value(change.p)}"
    return f"{sides}: {name} is {change.moved} by {by} ({interval_of(change)}{tested}) {over}"


def size_of(number: float, measure: Measure, *, sign: bool = True) -> str:
    """A difference; of shares in points of a hundred."""
    number, form = (number, "+") if sign else (abs(number), "")
    if measure.form != "mean":
        return f"{100 * number:{form}.2f} points"
    return f"{number:{form}.4g} {measure.unit}".rstrip()


def interval_of(change: Change) -> str:
    """The interval of the difference."""
    if change.low is None or change.high is None:
        return "no interval"
    if change.measure.form != "mean":
        return f"{100 * change.low:+.2f} to {100 * change.high:+.2f}"
    return f"{change.low:+.4g} to {change.high:+.4g}"


def p_value(p: float) -> str:
    """A p-value in few characters."""
    if p == 0:
        return "< 1e-300"  # below what a float can be
    return f"{p:.1e}" if p < 0.001 else f"{p:.3f}"


def value_of(number: float | None, measure: Measure) -> str:
    """A value of one side; of shares in points of a hundred."""
    if number is None:
        return "-"
    return f"{number:.4g}" if measure.form == "mean" else f"{100 * number:.2f}"
