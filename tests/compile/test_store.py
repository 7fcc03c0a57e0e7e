"""A stored bench: read back as it was, whole or not there, and damage is told in one line."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.compile.model import ENCODER, Measured
from proctor.compile.store import BENCH, page_of, read_bench, write_bench
from proctor.compile.verdict import verdict
from proctor.rows import UserError
from tests.compile.invented import invented


@pytest.fixture
def measured() -> Measured:
    return invented({"blocks": (9e-2, 8e-2), ENCODER: (0.1, 0.09)}, processes=2, rounds=2)


@pytest.fixture
def stored(measured: Measured, tmp_path: Path) -> Path:
    path = tmp_path / "folder" / BENCH
    write_bench(path, measured, verdict(measured))
    return path


def test_it_is_read_back_as_it_was(measured: Measured, stored: Path) -> None:
    assert read_bench(stored) == measured
    assert read_bench(stored.parent) == measured
    content = json.loads(stored.read_bytes())
    assert (content["format"], content["version"]) == ("proctor compile bench", 1)
    assert content["verdict"]["sentence"] == verdict(measured).sentence
    assert [file.name for file in stored.parent.iterdir()] == [BENCH]
    assert page_of(stored) == page_of(stored.parent) == stored.with_suffix(".html")


def test_a_bench_that_cannot_be_written_leaves_the_earlier_one(measured: Measured, stored: Path) -> None:
    before = stored.read_bytes()
    (stored.parent / f"{BENCH}.partial").mkdir()
    with pytest.raises(UserError, match="cannot be written"):
        write_bench(stored, measured, verdict(measured))
    assert stored.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": "something else"}, "not a bench: its format is 'something else'"),
        ({"version": 2}, "a bench of format version 2; this Proctor reads version 1"),
        ({"measured": {}}, "a damaged bench: .*subject"),
    ],
)
def test_what_is_not_a_bench_of_this_version_is_told(stored: Path, change: dict[str, Any], told: str) -> None:
    stored.write_text(json.dumps({**json.loads(stored.read_bytes()), **change}))
    with pytest.raises(UserError, match=told) as raised:
        read_bench(stored)
    assert str(stored) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (("timings", 0, "seconds"), -1.0, "1 calls of 'blocks' that took -1.0 s"),
        (("timings", 0, "calls"), 0, "0 calls of 'blocks'"),
        (("timings", 0, "shape"), "none", "timed at the shape 'none', which is not among the shapes"),
        (("timings", 0, "seconds"), None, "Expected `float`"),
        (("shapes", 0, "rows"), 0, "0 rows"),
        (("shapes", 0, "share"), -0.5, "share of -0.5"),
        (("rows",), -3, "a run of -3 rows"),
    ],
)
def test_figures_that_cannot_be_are_told(stored: Path, place: tuple[Any, ...], value: Any, told: str) -> None:
    content = json.loads(stored.read_bytes())
    inner = content["measured"]
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    stored.write_text(json.dumps(content))
    with pytest.raises(UserError, match=told):
        read_bench(stored)


def test_nothing_there_is_told(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nothing.json", tmp_path / "nothing" / BENCH):
        with pytest.raises(UserError, match="no bench here"):
            read_bench(place)


@given(data=st.data())
def test_damage_is_a_clear_error_or_a_bench(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    measured = invented({"blocks": (9e-2, 8e-2)}, processes=1, rounds=1, cost={})
    path = tmp_path_factory.mktemp("damaged") / BENCH
    write_bench(path, measured, verdict(measured))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content[: data.draw(st.integers(len(content) - 40, len(content)))]))
    with suppress(UserError):  # any other error fails the test
        assert verdict(read_bench(path)).sentence
