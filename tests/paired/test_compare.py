"""Two sides, row by row: what changed, how sure one can be, and that no row is dropped in silence."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.stats

from proctor.paired.comparing import Wish, compare
from proctor.paired.model import Change, Comparison, Measure
from proctor.paired.sides import line_up, open_run
from proctor.results import RunDir
from proctor.rows import UserError
from proctor.tasks.differences import change_bounds, mcnemar
from tests.paired.made import Answer, answers, drawn, make_run, vary


def compared(*places: Path | str, **wish: Any) -> Comparison:
    groups, missing = line_up([open_run(str(place)) for place in places])
    assert not missing
    (found,) = compare(groups[0], Wish(**wish))
    return found


def fates(found: Comparison) -> dict[tuple[str, str], int]:
    return {(line.a, line.b): line.rows for line in found.account.rows}


def test_flips_difference_and_test_are_those_of_the_rows(tmp_path: Path) -> None:
    before = drawn(1, 500, 0.8)
    after = vary(before, 2, 0.1)
    make_run(tmp_path / "a", {"c": answers(before)})
    make_run(tmp_path / "b", {"c": answers(after)}, parts=4)
    change = compared(tmp_path / "a", tmp_path / "b").change("accuracy")
    assert change is not None
    one, other = np.array(before), np.array(after)
    worse, better = int((one & ~other).sum()), int((~one & other).sum())
    assert (change.n, change.worse, change.better) == (500, worse, better)
    assert change.difference == pytest.approx(other.mean() - one.mean())
    assert change.p == pytest.approx(scipy.stats.binomtest(worse, worse + better).pvalue)
    half = 1.96 * np.std(other.astype(float) - one, ddof=1) / np.sqrt(500)
    assert change.low == pytest.approx(change.difference - half, abs=0.004)
    assert change.high == pytest.approx(change.difference + half, abs=0.004)
    assert change.detectable == pytest.approx(2.8016 * half / 1.96, rel=0.06)


def test_a_difference_of_the_detectable_size_is_seen_in_four_of_five_cases(tmp_path: Path) -> None:
    rows, loss = 1000, 0.10
    gain = 0.05
    worse_by, found = loss - gain, 0
    rng = np.random.default_rng(5)
    half = 1.96 * np.sqrt((loss + gain - worse_by**2) / rows)
    for _ in range(400):
        change = rng.choice([-1.0, 0.0, 1.0], p=[loss, 1 - loss - gain, gain], size=rows)
        found += abs(change.mean()) > half
    power = found / 400
    before = [True] * 500 + [False] * 500
    after = [*([False] * 100), *([True] * 400), *([True] * 50), *([False] * 450)]
    make_run(tmp_path / "a", {"c": answers(before)})
    make_run(tmp_path / "b", {"c": answers(after)})
    change = compared(tmp_path / "a", tmp_path / "b").change("accuracy")
    assert change is not None
    # The rows of `after` changed as often as those drawn above: what they say is detectable lies below 5 points, which
    # were seen in nearly all the cases.
    assert change.detectable == pytest.approx(2.8016 * half / 1.96, rel=0.03)
    expected = scipy.stats.norm.cdf(worse_by / (half / 1.96) - 1.96)
    assert power == pytest.approx(expected, abs=0.04)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_equally_good_sides_are_told_apart_in_at_most_one_of_twenty_cases(share: float) -> None:
    moved, cases, rows = 0, 200, 150
    for seed in range(cases):
        rng = np.random.default_rng(seed)
        change = (rng.random(rows) < share).astype(float) - (rng.random(rows) < share)
        low, high = change_bounds(change, np.ones(rows, dtype=np.int64), 1.0)
        worse, better = int((change < 0).sum()), int((change > 0).sum())
        measure = Measure("accuracy", "correct", "share")
        found = Change(measure, rows, low=low, high=high, worse=worse, better=better, p=mcnemar(worse, better))
        moved += found.moved != "no"
    assert moved <= scipy.stats.binom.ppf(0.999, cases, 0.05)


def test_equally_good_runs_are_seldom_told_apart(tmp_path: Path) -> None:
    checkpoints = {f"c{seed}": answers(drawn(seed, 150, 0.9)) for seed in range(24)}
    make_run(tmp_path / "a", checkpoints)
    moved = 0
    for seed in range(0, 24, 2):
        found = compared(f"{tmp_path}/a:c{seed}", f"{tmp_path}/a:c{seed + 1}", limit=0)
        moved += found.changes[0].moved != "no"
    assert moved <= scipy.stats.binom.ppf(0.999, 12, 0.05)


def test_the_same_answers_in_another_order_do_not_differ(tmp_path: Path) -> None:
    right = drawn(3, 300, 0.7)
    make_run(tmp_path / "a", {"c": answers(right)})
    make_run(tmp_path / "b", {"c": answers(right)}, order=list(np.random.default_rng(1).permutation(300)), parts=5)
    found = compared(tmp_path / "a", tmp_path / "b")
    assert found.regressed == 0
    assert not found.regressions
    for change in found.changes:
        assert (change.difference, change.moved, change.worse, change.better) == (0.0, "no", 0, 0)
        assert change.low is not None
        assert change.low < 0 < (change.high or 0)
    assert fates(found) == {("scored", "scored"): 300}


def test_every_row_is_in_the_account(tmp_path: Path) -> None:
    one: list[Answer] = ["yes", "yes", "yes", "yes", ("infer.empty", "blank"), None, None, ("lost", ""), "yes"]
    other: list[Answer] = ["yes", "no", ("prepare.decode", "no JPEG"), None, "yes", "yes", None, "yes", ("lost", "")]
    make_run(tmp_path / "a", {"c": one})
    make_run(tmp_path / "b", {"c": other})
    found = compared(tmp_path / "a", tmp_path / "b")
    assert fates(found) == {
        ("scored", "scored"): 2,
        ("scored", "error prepare.decode"): 1,
        ("scored", "no record"): 1,
        ("scored", "unanswered lost"): 1,
        ("error infer.empty", "scored"): 1,
        ("no record", "scored"): 1,
        ("unanswered lost", "scored"): 1,
    }
    assert found.account.nowhere == 1
    assert sum(fates(found).values()) + found.account.nowhere == 9
    assert found.account.count(a=True, b=False) == 3
    assert found.account.count(a=False, b=True) == 3
    assert found.regressed == 4
    assert [(row.row_a, row.change) for row in found.regressions] == [(1, -1.0), (2, None), (3, None), (8, None)]
    answered = found.change("answered")
    assert answered is not None
    assert (answered.n, answered.worse, answered.better) == (8, 3, 3)


def test_strict_counts_rows_without_a_score_as_wrong(tmp_path: Path) -> None:
    one: list[Answer] = ["yes"] * 8
    other: list[Answer] = ["yes", "no", ("infer.empty", "blank"), None, ("lost", ""), "yes", "yes", "yes"]
    make_run(tmp_path / "a", {"c": one})
    make_run(tmp_path / "b", {"c": other})
    plain = compared(tmp_path / "a", tmp_path / "b").change("accuracy")
    strict = compared(tmp_path / "a", tmp_path / "b", strict=True).change("accuracy")
    assert plain is not None
    assert strict is not None
    assert (plain.n, plain.worse, plain.b) == (5, 1, 0.8)
    assert (strict.n, strict.worse, strict.a, strict.b) == (8, 4, 1.0, 0.5)


def test_strict_leaves_rows_without_a_target_alone(tmp_path: Path) -> None:
    targets = ["yes", None, "yes"]
    make_run(tmp_path / "a", {"c": ["yes", "yes", "yes"]}, targets=targets)
    make_run(tmp_path / "b", {"c": ["yes", "no", ("infer.empty", "blank")]}, targets=targets)
    change = compared(tmp_path / "a", tmp_path / "b", strict=True).change("accuracy")
    assert change is not None
    assert (change.n, change.a, change.b) == (2, 1.0, 0.5)


def test_other_sources_are_refused_unless_paired_by_sample_id(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {"c": ["yes", "no", "yes"]}, samples=["x", "y", "z"])
    make_run(tmp_path / "b", {"c": ["no", "no", "yes"]}, samples=["z", "y", "w"], fingerprint="g")
    with pytest.raises(UserError, match=r"fingerprints differ.*--by sample-id"):
        compared(tmp_path / "a", tmp_path / "b")
    found = compared(tmp_path / "a", tmp_path / "b", by="sample-id")
    change = found.change("accuracy")
    assert change is not None
    assert (change.n, change.worse, change.better) == (2, 1, 0)
    assert fates(found) == {("scored", "scored"): 2, ("scored", "no record"): 1, ("no record", "scored"): 1}
    assert found.regressed == 1  # a row that the other source does not have has not got worse
    (regression,) = found.regressions
    assert (regression.row_a, regression.row_b, regression.sample_id) == (2, 0, "z")


def test_an_unproven_source_is_refused(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {"c": ["yes"]})
    make_run(tmp_path / "b", {"c": ["yes"]}, fingerprint=None)
    with pytest.raises(UserError, match=r"no source\.json"):
        compared(tmp_path / "a", tmp_path / "b")


def test_sample_ids_that_are_not_unique_pair_with_nothing_and_are_stated(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {"c": ["yes", "no", "yes", "yes", "yes"]}, samples=["x", "x", "y", None, "z"])
    make_run(tmp_path / "b", {"c": ["no", "no", "no", "no", "no"]}, samples=["x", "y", "q", "z", "z"])
    found = compared(tmp_path / "a", tmp_path / "b", by="sample-id")
    change = found.change("accuracy")
    assert change is not None
    assert change.n == 1
    assert fates(found) == {
        ("scored", "scored"): 1,
        ("sample id not unique", "no record"): 3,
        ("no sample id", "no record"): 1,
        ("no record", "sample id not unique"): 3,
        ("no record", "scored"): 1,
    }
    answered = found.change("answered")
    assert answered is not None
    assert answered.n == 1


def test_clusters_widen_the_interval_and_are_what_the_test_counts(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    lost = np.repeat(rng.random(40) < 0.3, 20)
    samples = [f"drive-{row // 20:02d}/{row % 20}" for row in range(800)]
    make_run(tmp_path / "a", {"c": answers([True] * 800)}, samples=samples)
    make_run(tmp_path / "b", {"c": answers([not each for each in lost])}, samples=samples)
    alone = compared(tmp_path / "a", tmp_path / "b").change("accuracy")
    together = compared(tmp_path / "a", tmp_path / "b", cluster=r"sample_id~^(drive-\d+)").change("accuracy")
    assert alone is not None
    assert together is not None
    assert together.clusters == 40
    assert together.worse == int(lost.sum()) // 20
    assert together.n == alone.n == 800
    assert together.difference == alone.difference

    def width(change: Any) -> float:
        return change.high - change.low

    assert width(together) == pytest.approx(width(alone) * np.sqrt(20), rel=0.15)


def test_a_cluster_that_is_no_column_is_refused(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {"c": ["yes"], "d": ["yes"]})
    with pytest.raises(UserError, match="no column 'drive'"):
        compared(f"{tmp_path}/a:c", f"{tmp_path}/a:d", cluster="drive")
    with pytest.raises(UserError, match="not a regular expression"):
        compared(f"{tmp_path}/a:c", f"{tmp_path}/a:d", cluster="sample_id~(")


def test_three_runs_are_each_compared_with_the_first(tmp_path: Path) -> None:
    for name, said in (("a", ["yes", "yes"]), ("b", ["yes", "no"]), ("c", ["no", "no"])):
        make_run(tmp_path / name, {"m": said})
    groups, _ = line_up([open_run(str(tmp_path / name)) for name in "abc"])
    found = compare(groups[0], Wish())
    assert [(each.a, each.b, each.regressed) for each in found] == [("a:m", "b:m", 1), ("a:m", "c:m", 2)]


def test_checkpoints_are_put_beside_their_namesakes_and_the_others_are_stated(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {"s1": ["yes"], "s2": ["yes"], "s3": ["yes"]})
    make_run(tmp_path / "b", {"s2": ["no"], "s3": ["yes"], "s4": ["yes"]})
    groups, missing = line_up([open_run(str(tmp_path / "a")), open_run(str(tmp_path / "b"))])
    assert [[side.checkpoint for side in group] for group in groups] == [["s2", "s2"], ["s3", "s3"]]
    assert [text.split(" is not in ")[0] for text in missing] == ["s1", "s4"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["a"], "two to four runs"),
        (["a", "a", "a", "a", "a"], "two to four runs"),
        (["a:s1", "a:s1"], "is there twice"),
        (["a:s1", "b:s9"], "no checkpoint 's9' in this run"),
        (["a:s1", "b"], "has several checkpoints"),
        (["a:s1", "nothing"], "no run here"),
        (["a", "c"], "no checkpoint has the same name"),
    ],
)
def test_what_cannot_be_compared_is_said_in_one_line(tmp_path: Path, given: list[str], said: str) -> None:
    make_run(tmp_path / "a", {"s1": ["yes"], "s2": ["yes"]})
    make_run(tmp_path / "b", {"s1": ["no"], "s2": ["yes"]})
    make_run(tmp_path / "c", {"t1": ["no"], "t2": ["yes"]})
    with pytest.raises(UserError, match=said):
        line_up([open_run(str(tmp_path / each)) for each in given])


def test_other_tasks_are_not_compared(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {"c": ["yes"]})
    make_run(tmp_path / "b", {"c": ["yes"]}, task={"kind": "regex", "prompt": "?", "pattern": "yes|no"})
    with pytest.raises(UserError, match="different tasks: exact and regex"):
        compared(tmp_path / "a", tmp_path / "b")


def test_what_else_differs_between_the_runs_is_said(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {"c": ["yes"]})
    make_run(tmp_path / "b", {"d": ["yes"]}, task={"kind": "exact", "prompt": "Really?"})
    assert compared(tmp_path / "a", tmp_path / "b").spec_changes == ["task.prompt: '?' -> 'Really?'"]


def test_other_targets_are_counted(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {"c": ["yes", "no"]}, targets=["yes", "yes"])
    make_run(tmp_path / "b", {"c": ["yes", "no"]}, targets=["yes", "no"])
    found = compared(tmp_path / "a", tmp_path / "b")
    assert found.account.other_targets == 1
    assert not found.account.sound


def test_all_that_changed_can_be_exported(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {"c": ["yes", "yes", "no", "yes", "yes"]})
    make_run(tmp_path / "b", {"c": ["yes", "no", "yes", ("infer.empty", "blank"), "no"]})
    table, lines, ids = tmp_path / "x.parquet", tmp_path / "x.csv", tmp_path / "ids.txt"
    compared(tmp_path / "a", tmp_path / "b", export=table, ids=ids)
    compared(tmp_path / "a", tmp_path / "b", export=lines, limit=0)
    rows = pq.read_table(table).to_pylist()
    assert [(row["row_a"], row["change"]) for row in rows] == [(1, -1.0), (4, -1.0), (2, 1.0), (3, None)]
    assert (rows[0]["answer_a"], rows[0]["answer_b"], rows[0]["accuracy_a"], rows[0]["accuracy_b"]) == (
        "yes",
        "no",
        1,
        0,
    )
    with lines.open() as file:
        assert [row["row_a"] for row in csv.DictReader(file)] == ["1", "4", "2", "3"]
    assert ids.read_text().split() == ["1", "4", "3"]
    for out, said in ((tmp_path / "x.xlsx", "no format is known"), (tmp_path / "no" / "x.csv", "no such directory")):
        with pytest.raises(UserError, match=said):
            compared(tmp_path / "a", tmp_path / "b", export=out)


def test_the_sides_agree_with_the_summaries_of_their_runs(tmp_path: Path) -> None:
    """On complete runs a comparison's values are those that the runs report, for every metric of every task."""
    from tests.view.helpers import make_run as make_driving

    run = make_driving(tmp_path / "driving", 120)
    labels = ["dry", "wet", "snow"]
    truth = [labels[row % 3] for row in range(120)]
    said = [labels[(row * row) % 3] for row in range(120)]
    task = {"kind": "classification", "labels": labels}
    make_run(tmp_path / "a", {"c": said, "d": truth}, task=task, targets=truth)
    for place, names in ((run.location, ("step-1600", "step-6400")), (str(tmp_path / "a"), ("c", "d"))):
        metrics = RunDir(place).read("metrics")
        found = compared(*(f"{place}:{name}" for name in names))
        both = found.account.count(a=True, b=True)
        for change in found.changes:
            if change.measure.name in ("answered", "parse_failures"):
                continue
            for name, value in zip(names, (change.a, change.b), strict=True):
                (stored,) = [m for m in metrics[name]["metrics"] if m["name"] == change.measure.name]
                if stored["n"] == both:
                    assert value == pytest.approx(stored["value"], rel=1e-9), change.measure.name
        headline = found.changes[0].measure.name
        assert {m["name"] for m in metrics[names[0]]["metrics"]} == {change.measure.name for change in found.changes}
        assert headline == found.headline == metrics[names[0]]["headline"]


def test_a_macro_f1_is_compared_by_drawing_rows(tmp_path: Path) -> None:
    labels = ["dry", "wet", "snow"]
    rng = np.random.default_rng(7)
    truth = [labels[i] for i in rng.integers(3, size=300)]

    def says(seed: int, share: float) -> list[str]:
        draw = np.random.default_rng(seed)
        return [label if draw.random() < share else labels[draw.integers(3)] for label in truth]

    task = {"kind": "classification", "labels": labels}
    make_run(tmp_path / "a", {"c": says(1, 0.85)}, task=task, targets=truth)
    make_run(tmp_path / "b", {"c": says(2, 0.55)}, task=task, targets=truth)
    plain = compared(tmp_path / "a", tmp_path / "b").change("macro_f1")
    samples = compared(tmp_path / "a", tmp_path / "b", cluster="sample_id").change("macro_f1")
    assert plain is not None
    assert samples is not None
    assert plain.low is not None
    assert plain.high is not None
    one, other = (np.array(says(*kind)) for kind in ((1, 0.85), (2, 0.55)))
    target, drawn_f1 = np.array(truth), []
    for _ in range(500):
        rows = rng.integers(300, size=300)
        drawn_f1.append(_f1(target[rows], other[rows]) - _f1(target[rows], one[rows]))
    low, high = np.percentile(drawn_f1, (2.5, 97.5))
    assert plain.difference == pytest.approx(_f1(target, other) - _f1(target, one))
    assert (plain.low, plain.high) == (pytest.approx(low, abs=0.015), pytest.approx(high, abs=0.015))
    # Every row its own cluster, put together at random: the same interval, but for the grouping.
    assert samples.high is not None
    assert samples.low is not None
    assert samples.high - samples.low == pytest.approx(plain.high - plain.low, rel=0.2)


def _f1(target: Any, said: Any) -> float:
    scores = []
    for label in sorted({*target, *said}):
        hits = int(((target == label) & (said == label)).sum())
        scores.append(2 * hits / (int((target == label).sum()) + int((said == label).sum())))
    return sum(scores) / len(scores)


def test_distances_are_better_when_smaller(tmp_path: Path) -> None:
    from tests.view.helpers import make_run as make_driving

    run = make_driving(tmp_path, 120)
    found = compared(f"{run.location}:step-0400", f"{run.location}:step-6400", metric="ade", limit=5)
    ade = found.change("ade")
    assert ade is not None
    assert ade.difference is not None
    with duckdb.connect() as connection:
        run.records(connection).create_view("records")
        values = connection.execute(
            "select a.ade, b.ade from records a join records b using (row_id) where a.checkpoint = 'step-0400' and "
            "b.checkpoint = 'step-6400' and a.ade is not null and b.ade is not null"
        ).fetchall()
    before, after = np.array(values).T
    assert ade.difference == pytest.approx(float((after - before).mean()))
    assert ade.better == int((after < before).sum())
    assert ade.moved == "better"
    changes = [row.change for row in found.regressions if row.change is not None]
    assert changes == sorted(changes)
    assert max(changes) < 0


def test_json_of_the_command_is_one_object_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from typer.testing import CliRunner

    from proctor.cli.app import app

    make_run(tmp_path / "a", {"c": ["yes", "yes"]})
    make_run(tmp_path / "b", {"c": ["yes", "no"]})
    done = CliRunner().invoke(app, ["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json"])
    lines = [json.loads(line) for line in done.output.splitlines()]
    assert done.exit_code == 0
    assert [line["event"] for line in lines] == ["change"] * 3 + ["regression", "comparison"]
    assert (lines[0]["metric"], lines[0]["worse"], lines[0]["n"]) == ("accuracy", 1, 2)
    assert lines[-1]["regressed"] == 1
