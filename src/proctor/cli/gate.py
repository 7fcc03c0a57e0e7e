"""``proctor gate``: whether a run is good enough, for scripts."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from proctor.cli.compare import By, ClusterOption, Pairing, Strict
from proctor.cli.output import escaped, json_line, stderr, stdout, table
from proctor.cli.run import Json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proctor.paired.limits import Checked, Kind, Limit

_COLOURS = {"passed": "green", "failed": "bold red", "cannot be judged": "bold yellow"}
_Limits = list[str] | None


def gate(
    run: Annotated[str, typer.Argument(metavar="RUN[:CHECKPOINT]", help="The run; all its checkpoints, or one.")],
    min_accuracy: Annotated[
        float | None, typer.Option("--min-accuracy", min=0, max=1, help="Short for --min accuracy=VALUE.")
    ] = None,
    min_: Annotated[_Limits, typer.Option("--min", metavar="METRIC=VALUE", help="A metric must reach it.")] = None,
    max_: Annotated[_Limits, typer.Option("--max", metavar="METRIC=VALUE", help="A metric must not pass it.")] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="RUN[:CHECKPOINT]", help="What --max-drop compares with.")
    ] = None,
    max_drop: Annotated[
        _Limits,
        typer.Option(
            "--max-drop",
            metavar="[METRIC=]VALUE",
            help="A metric (default: the headline) must not be worse than the baseline's by more.",
        ),
    ] = None,
    max_error_rate: Annotated[
        float | None, typer.Option("--max-error-rate", min=0, max=1, help="Largest share of rows with an error.")
    ] = None,
    max_unanswered: Annotated[
        int, typer.Option("--max-unanswered", min=0, help="Most rows without a final record.")
    ] = 0,
    by: Pairing = By.ROW_ID,
    cluster: ClusterOption = None,
    strict: Strict = False,
    point: Annotated[
        bool, typer.Option("--point", help="Judge values as they are, without their intervals: nothing is open then.")
    ] = False,
    json: Json = False,
) -> None:
    """Hold a run against limits and against a baseline.

    A condition passes, or fails, where the whole 95 % interval is on one side of the limit. Where it holds the limit,
    the rows do not tell; then it is said about how many rows would. Unanswered rows and the error rate are counts of
    this run and need no interval.

    Exit code: 0 all conditions pass, 5 one fails, 3 none fails and one cannot be judged, 1 a mistake in the input.
    """
    from proctor.paired.gate import Rules, exit_code
    from proctor.paired.gate import gate as judged
    from proctor.paired.sides import open_run

    wanted: list[tuple[Kind, Sequence[str]]] = [
        ("min", ([] if min_accuracy is None else [f"accuracy={min_accuracy!r}"]) + (min_ or [])),
        ("max", max_ or []),
        ("drop", max_drop or []),
    ]
    rules = Rules(_limits(wanted), max_error_rate, max_unanswered, by.value, cluster, strict, point)
    checked = judged(open_run(run), None if baseline is None else open_run(baseline), rules)
    code = exit_code(checked)
    if json:
        for each in checked:
            json_line("condition", **asdict(each))
        json_line("gate", exit_code=code, verdict={0: "passed", 5: "failed"}.get(code, "cannot be judged"))
    else:
        _show(checked)
    raise typer.Exit(code)


def _limits(wanted: Sequence[tuple[Kind, Sequence[str]]]) -> list[Limit]:
    from proctor.paired.limits import Limit

    return [Limit.of(kind, text) for kind, texts in wanted for text in texts]


def _show(checked: Sequence[Checked]) -> None:
    rows = [(each.side, each.condition, _number(each.value), _interval(each), each.n or None, each.outcome)
            for each in checked]  # fmt: skip
    stdout.print(table(["checkpoint", "condition", "value", "95 % interval", "n", "outcome"], rows))
    for each in checked:
        if each.why:
            stdout.say(f"{each.side}, {each.condition}: {each.why}", style=_COLOURS[each.outcome])
    for outcome in ("failed", "cannot be judged"):
        those = [f"{each.side}: {each.condition}" for each in checked if each.outcome == outcome]
        if those:
            stderr.print(f"[{_COLOURS[outcome]}]{outcome}:[/] {escaped('; '.join(those))}", soft_wrap=True)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def _interval(each: Checked) -> str:
    return "-" if each.low is None or each.high is None else f"{each.low:.4f} to {each.high:.4f}"
