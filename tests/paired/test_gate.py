"""The gate passes, fails, or says that the rows do not tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from proctor.cli.app import app
from proctor.paired.gate import Rules, exit_code, gate
from proctor.paired.limits import Checked, Limit, held
from proctor.paired.sides import open_run
from proctor.rows import UserError
from proctor.tasks.statistics import wilson
from tests.paired.made import Answer, answers, drawn, make_run, vary


def judged(run: Path | str, *limits: str, baseline: Path | str | None = None, **rules: Any) -> list[Checked]:
    """Limits are written ``min accuracy=0.9``."""
    wanted = [Limit.of(*text.split(" ")) for text in limits]  # type: ignore[arg-type]
    against = None if baseline is None else open_run(str(baseline))
    return gate(open_run(str(run)), against, Rules(wanted, **rules))


def outcome(checked: list[Checked], condition: str) -> str:
    (found,) = [each.outcome for each in checked if each.condition == condition]
    return found


@pytest.mark.parametrize(
    ("limit", "expected", "code"), [(0.70, "passed", 0), (0.80, "cannot be judged", 3), (0.90, "failed", 5)]
)
def test_a_minimum_is_judged_by_the_whole_interval(tmp_path: Path, limit: float, expected: str, code: int) -> None:
    make_run(tmp_path / "a", {"c": answers([True] * 320 + [False] * 80)})
    checked = judged(tmp_path / "a", f"min accuracy={limit}")
    assert outcome(checked, f"accuracy >= {limit:g}") == expected
    assert exit_code(checked) == code


def test_how_many_rows_would_tell_is_about_right() -> None:
    """With the rows it asks for and the same share, the condition can be judged; with a tenth fewer it cannot."""
    limit = Limit("min", "accuracy", 0.9)

    def at(n: int) -> Checked:
        interval = wilson(round(0.92 * n), n)
        return held("c", limit, round(0.92 * n) / n, interval.low, interval.high, n, point=False)

    found = at(250)
    assert found.outcome == "cannot be judged"
    assert found.rows_needed is not None
    assert at(round(found.rows_needed * 1.1)).outcome == "passed"
    assert at(round(found.rows_needed * 0.8)).outcome == "cannot be judged"
    assert "rows would tell" in found.why


def test_no_number_of_rows_tells_whether_a_value_reaches_itself() -> None:
    found = held("c", Limit("min", "accuracy", 0.9), 0.9, 0.85, 0.93, 100, point=False)
    assert (found.outcome, found.rows_needed) == ("cannot be judged", None)


def test_point_judges_the_value_alone(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {"c": answers([True] * 80 + [False] * 20)})
    assert exit_code(judged(tmp_path / "a", "min accuracy=0.8", point=True)) == 0
    assert exit_code(judged(tmp_path / "a", "min accuracy=0.81", point=True)) == 5


@pytest.mark.parametrize("seed", range(6))
def test_a_run_never_fails_against_itself_in_another_order(tmp_path: Path, seed: int) -> None:
    right = drawn(seed, 60 + 150 * seed, 0.5 + 0.08 * seed)
    make_run(tmp_path / "a", {"c": answers(right)})
    make_run(tmp_path / "b", {"c": answers(right)}, order=list(reversed(range(len(right)))), parts=3)
    for drop in (0.0, 0.01):
        checked = judged(tmp_path / "b", f"drop {drop}", baseline=tmp_path / "a")
        assert exit_code(checked) in (0, 3)
    assert exit_code(judged(tmp_path / "b", "drop 0.1", baseline=tmp_path / "a")) == 0


def test_a_drop_is_judged_on_paired_rows(tmp_path: Path) -> None:
    before = drawn(1, 1000, 0.8)
    make_run(tmp_path / "a", {"c": answers(before)})
    make_run(tmp_path / "b", {"c": answers(vary(before, 2, 0.06, lambda right: right))})
    results = {
        limit: exit_code(judged(tmp_path / "b", f"drop {limit}", baseline=tmp_path / "a"))
        for limit in (0.01, 0.05, 0.09)
    }
    assert results == {0.01: 5, 0.05: 3, 0.09: 0}
    assert exit_code(judged(tmp_path / "a", "drop accuracy=0.0", baseline=tmp_path / "b")) == 0


def test_a_distance_drops_by_growing(tmp_path: Path) -> None:
    from tests.view.helpers import make_run as make_driving

    run = make_driving(tmp_path, 120).location
    better, worse = f"{run}:step-6400", f"{run}:step-0400"
    rules = {"max_unanswered": None}
    assert exit_code(judged(better, "drop ade=0.0", baseline=worse, **rules)) == 0
    assert exit_code(judged(worse, "drop ade=0.001", baseline=better, **rules)) == 5
    assert exit_code(judged(better, "max ade=0.1", **rules)) == 0
    assert exit_code(judged(better, "max ade=0.0001", **rules)) in (3, 5)


def test_unanswered_rows_fail_unless_allowed(tmp_path: Path) -> None:
    said: list[Answer] = ["yes", "yes", None, ("lost", ""), ("infer.empty", "blank")]
    make_run(tmp_path / "a", {"c": said})
    assert exit_code(judged(tmp_path / "a")) == 5
    checked = judged(tmp_path / "a", max_unanswered=2)
    assert exit_code(checked) == 0
    assert checked[0].value == 2
    assert exit_code(judged(tmp_path / "a", max_unanswered=None, max_error_rate=0.2)) == 0
    assert exit_code(judged(tmp_path / "a", max_unanswered=None, max_error_rate=0.19)) == 5


def test_strict_also_holds_rows_without_a_score_against_the_run(tmp_path: Path) -> None:
    said: list[Answer] = ["yes"] * 60 + [("infer.empty", "blank")] * 40
    make_run(tmp_path / "a", {"c": said})
    make_run(tmp_path / "b", {"c": ["yes"] * 100})
    assert exit_code(judged(tmp_path / "a", "min accuracy=0.9")) == 0
    (_, found) = judged(tmp_path / "a", "min accuracy=0.9", strict=True)
    assert (found.outcome, found.value, found.n) == ("failed", 0.6, 100)
    assert exit_code(judged(tmp_path / "a", "drop 0.2", baseline=tmp_path / "b")) == 0
    assert exit_code(judged(tmp_path / "a", "drop 0.2", baseline=tmp_path / "b", strict=True)) == 5


def test_each_checkpoint_has_its_namesake_as_baseline(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {"s1": ["yes"] * 200, "s2": ["yes"] * 200})
    make_run(tmp_path / "b", {"s2": ["no"] * 200, "s3": ["yes"] * 200, "s1": ["yes"] * 200})
    checked = judged(tmp_path / "b", "drop 0.1", baseline=tmp_path / "a", max_unanswered=None)
    assert [(each.side, each.outcome) for each in checked] == [
        ("b:s2", "failed"),
        ("b:s3", "cannot be judged"),
        ("b:s1", "passed"),
    ]
    assert "no checkpoint s3" in checked[1].why
    one = judged(tmp_path / "b", "drop 0.1", baseline=f"{tmp_path}/a:s1", max_unanswered=None)
    assert [each.outcome for each in one] == ["failed", "passed", "passed"]


def test_other_targets_in_the_baseline_cannot_be_judged(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {"c": ["yes"] * 100}, targets=["yes"] * 100)
    make_run(tmp_path / "b", {"c": ["yes"] * 100}, targets=["yes"] * 99 + ["no"])
    checked = judged(tmp_path / "b", "drop 0.5", baseline=tmp_path / "a")
    assert exit_code(checked) == 3
    assert "another target" in checked[-1].why


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--min", "accuracy"], "no METRIC=VALUE"),
        (["--min", "accuracy=much"], "'much' is not a number"),
        (["--min", "accuracy=nan"], "nan cannot be a limit"),
        (["--max-drop", "-1"], "-1 cannot be a limit"),
        (["--min", "f1=0.5"], "no metric 'f1'"),
        (["--max-drop", "0.1"], "give --baseline RUN"),
        (["--baseline", "RUN"], "give --max-drop"),
        (["--baseline", "RUN:d", "--max-drop", "ade=0.1"], "no metric 'ade' that can be compared"),
        (["--cluster", "sample_id", "--min-accuracy", "0.5"], "clustered for --max-drop only"),
    ],
)
def test_rules_that_make_no_sense_are_refused(tmp_path: Path, arguments: list[str], said: str) -> None:
    make_run(tmp_path / "a", {"c": ["yes"], "d": ["yes"]})
    given = [argument.replace("RUN", str(tmp_path / "a")) for argument in arguments]
    done = CliRunner().invoke(app, ["gate", f"{tmp_path}/a:c", *given])
    assert isinstance(done.exception, UserError)
    assert said in str(done.exception)


def test_the_command_ends_with_the_verdict(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {"c": answers([True] * 380 + [False] * 20)})
    place = str(tmp_path / "a")
    for limit, code, word in (("0.9", 0, "passed"), ("0.95", 3, "cannot be judged"), ("0.99", 5, "failed")):
        done = CliRunner().invoke(app, ["gate", place, "--min-accuracy", limit])
        assert done.exit_code == code
        assert word in done.output
        done = CliRunner().invoke(app, ["gate", place, "--min-accuracy", limit, "--json"])
        assert f'"exit_code":{code}' in done.output


def test_rows_that_never_differ_need_few_more_to_tell(tmp_path: Path) -> None:
    """Where nothing changed, the bound goes with 1 / n: about 385 rows exclude a drop of one point."""
    make_run(tmp_path / "a", {"c": ["yes"] * 200, "d": ["yes"] * 200})
    checked = judged(f"{tmp_path}/a:d", "drop 0.01", baseline=f"{tmp_path}/a:c")
    assert checked[-1].outcome == "cannot be judged"
    assert checked[-1].rows_needed == pytest.approx(385, rel=0.05)
    make_run(tmp_path / "b", {"c": ["yes"] * 400, "d": ["yes"] * 400})
    assert exit_code(judged(f"{tmp_path}/b:d", "drop 0.01", baseline=f"{tmp_path}/b:c")) == 0
