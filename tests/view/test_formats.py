from __future__ import annotations

import pytest

from proctor.results import Ledger
from proctor.tasks import Metric
from proctor.view.formats import NOTHING, clip, duration, metric_interval, metric_value, percent, since, whole
from proctor.view.verdict import verdict


def metric(value: float | None, low: float | None, high: float | None, unit: str = "") -> Metric:
    return Metric("m", value, low, high, 10, 10, unit=unit)


@pytest.mark.parametrize(
    ("given", "value", "interval"),
    [
        (metric(0.5, 0.25, 0.75), "50.0 %", "25.0 to 75.0"),
        (metric(0.5, 0.4995, 0.5005), "50.00 %", "49.95 to 50.05"),
        (metric(0.0127, 0.006, 0.0205, "m"), "0.013 m", "0.006 to 0.021"),
        (metric(1.5, None, None, "m"), "1.50 m", "no interval"),
        (metric(12345.6, 12000.0, 13000.0), "12,346", "12,000 to 13,000"),
        (metric(float("nan"), None, None), "nan", "no interval"),
        (metric(None, None, None), NOTHING, "no interval"),
    ],
)
def test_metrics(given: Metric, value: str, interval: str) -> None:
    assert (metric_value(given), metric_interval(given)) == (value, interval)


def test_a_little_is_not_rounded_to_nothing_nor_nearly_all_to_all() -> None:
    assert [percent(share) for share in (0, 0.0001, 0.004, 0.9999, 1)] == [
        "0.0 %",
        "< 0.1 %",
        "0.4 %",
        "> 99.9 %",
        "100.0 %",
    ]


def test_times_and_numbers() -> None:
    assert [duration(s) for s in (4.26, 125, 3725)] == ["4.3 s", "2:05 min", "1:02:05 h"]
    assert [since(s) for s in (0, 61, 3661)] == ["+0:00", "+1:01", "+1:01:01"]
    assert whole(1234567) == "1,234,567"


def test_texts_are_cut_and_what_is_hidden_is_shown() -> None:
    assert clip("abcdef", 4) == "abc…"
    assert clip("a\x00b\x1b[31m\u202ec\n\td") == "a\ufffdb\ufffd[31m\ufffdc\n\td"
    assert clip("👩\u200d🚀 ä") == "👩\u200d🚀 ä"


def test_verdicts() -> None:
    good = Ledger("a", expected=10, answered=10)
    errors = Ledger("a", expected=10, answered=4, errors={"infer.empty": 6})
    lost = Ledger("a", expected=10, answered=9, unanswered={"lost": 1})
    odd = Ledger("a", expected=10, answered=12, duplicate=1, unexpected=1)
    assert verdict([good], 0, 0.01).detail == "All 10 expected records are there, each once; all with an answer."
    assert verdict([errors], 2, 0.01).detail.startswith("Every row has its record, but 60.0 % of a ended in an error")
    assert verdict([lost], 3, 0.01).detail.startswith("1 rows have no final record. ")
    assert verdict([lost], 130, 0.01).headline == "Interrupted"
    assert "more than once; 1 records are of rows that the source does not have" in verdict([odd], 3, 0.01).detail
    assert verdict([], 0, 0.01).tone == verdict([good], None, 0.01).tone == "open"
    assert verdict([Ledger("a")], 0, 0.01).detail == "The source has no rows."
