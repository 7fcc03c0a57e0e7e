from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from proctor.tasks.values import value_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is ", "as it is "),
        (True, "true"),
        (np.bool_(False), "false"),
        (7, "7"),
        (np.int16(7), "7"),
        (3.0, "3"),
        (0.1, "0.1"),
        (np.float64(2.5), "2.5"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (Decimal("1.50"), "1.50"),
        (date(2026, 3, 1), "2026-03-01"),
        (datetime(2026, 3, 1, 12, tzinfo=UTC), "2026-03-01T12:00:00+00:00"),
        ([1, "ä"], '[1,"ä"]'),
        ({"a": None}, '{"a":null}'),
    ],
)
def test_every_plain_value_has_one_text(value: Any, text: str) -> None:
    assert value_text(value) == text


def test_null_and_bytes_have_none() -> None:
    with pytest.raises(ValueError, match="is null"):
        value_text(None)
    with pytest.raises(ValueError, match="holds bytes"):
        value_text(b"x")
