from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from proctor.tasks import summaries


@pytest.mark.parametrize("name", ["right", "order", 'a "quoted" one', "with space", "select"])
def test_columns_may_be_called_like_words_of_sql(name: str) -> None:
    values = pa.table(
        {
            name: pa.array([True, False, None, True]),
            f"{name}_m": pa.array([1.0, 3.0, None, 2.0]),
            f"{name}_l": pa.array(["x", "y", None, "x"]),
            f"{name}_l_target": pa.array(["x", "x", "y", "x"]),
        }
    )
    with duckdb.connect() as connection:
        records = connection.from_arrow(values)
        share = summaries.share_of(records, "share", name, 4)
        mean = summaries.mean_of(records, "mean", f"{name}_m", 4, unit="m")
        confusion = summaries.confusion_of(records, f"{name}_l", ["x", "y"])
    assert (share.value, share.n) == (pytest.approx(2 / 3), 3)
    assert (mean.value, mean.n) == (2.0, 3)
    assert confusion.counts == ((2, 1), (0, 0))
