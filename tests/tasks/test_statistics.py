from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from proctor.tasks.statistics import (
    BOOTSTRAP_ROWS,
    NO_INTERVAL,
    bootstrap_mean,
    macro_f1,
    macro_f1_interval,
    normal_mean,
    wilson,
)
from proctor.tasks.summaries import mean_of


@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_equals_scipy(counts: tuple[int, int]) -> None:
    reference = scipy.stats.binomtest(*counts).proportion_ci(method="wilson")
    low, high, _ = wilson(*counts)
    assert (low, high) == pytest.approx((reference.low, reference.high), abs=1e-9)
    assert 0 <= low <= counts[0] / counts[1] <= high <= 1


def test_wilson_known_values() -> None:
    assert wilson(5, 10)[:2] == pytest.approx((0.2366, 0.7634), abs=5e-5)
    assert wilson(0, 10)[:2] == pytest.approx((0.0, 0.2775), abs=5e-5)
    assert wilson(0, 0) == NO_INTERVAL


def confusion(truth: list[int], said: list[int], labels: int) -> np.ndarray:
    counts = np.zeros((labels, labels), dtype=np.int64)
    np.add.at(counts, (truth, said), 1)
    return counts


def test_macro_f1_leaves_out_labels_that_do_not_occur() -> None:
    assert macro_f1(confusion([0, 1, 2, 0, 1, 2], [0, 2, 1, 0, 0, 1], 3)) == pytest.approx(0.8 / 3)
    assert macro_f1(confusion([0, 1, 2, 0, 1, 2], [0, 2, 1, 0, 0, 1], 9)) == pytest.approx(0.8 / 3)
    assert macro_f1(confusion([0, 0], [0, 1], 2)) == pytest.approx((2 / 3 + 0) / 2)
    assert macro_f1(np.zeros((3, 3), dtype=np.int64)) is None


def test_macro_f1_interval_follows_the_rows_resampled_one_by_one() -> None:
    rng = np.random.default_rng(3)
    truth = rng.integers(3, size=150)
    said = np.where(rng.random(150) < 0.7, truth, rng.integers(3, size=150))
    drawn = rng.integers(150, size=(4_000, 150))
    slow = [macro_f1(confusion(list(truth[d]), list(said[d]), 3)) for d in drawn]
    low, high, method = macro_f1_interval(confusion(list(truth), list(said), 3))
    assert (low, high) == pytest.approx(tuple(np.percentile(slow, [2.5, 97.5])), abs=0.01)
    assert method == "bootstrap"


def test_macro_f1_interval_of_no_errors_is_not_a_point() -> None:
    assert macro_f1_interval(np.diag([3, 4, 3])) == wilson(10, 10)
    assert macro_f1_interval(np.zeros((2, 2), dtype=np.int64)) == NO_INTERVAL


def test_macro_f1_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    cells = np.array([[0.30, 0.05, 0.05], [0.02, 0.23, 0.05], [0.05, 0.05, 0.20]])
    truth = macro_f1((cells * 10_000).round().astype(np.int64))
    rng = np.random.default_rng(11)
    hits = 0
    for _ in range(300):
        low, high, _ = macro_f1_interval(rng.multinomial(200, cells.ravel()).reshape(3, 3))
        hits += low <= truth <= high
    assert 0.91 <= hits / 300 <= 0.985


def test_bootstrap_mean_is_close_to_scipy_and_blind_to_order() -> None:
    values = np.random.default_rng(5).exponential(2.0, size=300)
    reference = scipy.stats.bootstrap((values,), np.mean, n_resamples=4_000, method="percentile", rng=1)
    low, high, method = bootstrap_mean(values)
    assert (low, high) == pytest.approx(tuple(reference.confidence_interval), abs=0.05)
    assert bootstrap_mean(values[::-1]) == (low, high, method)


def test_no_spread_no_interval() -> None:
    assert bootstrap_mean(np.array([])) == NO_INTERVAL
    assert bootstrap_mean(np.array([1.5])) == NO_INTERVAL
    assert bootstrap_mean(np.zeros(40)) == NO_INTERVAL
    assert normal_mean(1.0, 0.0, 100) == NO_INTERVAL


def test_normal_mean() -> None:
    assert normal_mean(2.0, 10.0, 10_000)[:2] == pytest.approx((2 - 0.195996, 2 + 0.195996), abs=1e-6)


def test_means_of_many_rows_use_the_normal_interval_and_agree_with_the_bootstrap() -> None:
    import duckdb

    values = np.random.default_rng(7).exponential(1.0, size=BOOTSTRAP_ROWS + 1)
    with duckdb.connect() as connection:
        many = mean_of(connection.from_arrow(pa.table({"d": values})), "d", "d", 20_000, unit="m")
        few = mean_of(connection.from_arrow(pa.table({"d": values[:-1]})), "d", "d", 20_000, unit="m")
    assert (many.method, few.method) == ("normal", "bootstrap")
    assert (many.low, many.high) == pytest.approx((few.low, few.high), abs=0.003)
    assert many.value == pytest.approx(values.mean())
