from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from proctor.audit.compare import compare, repeat_table, token_table, token_tables, write_tokens
from proctor.audit.compare.tokens import SCHEMA
from tests.audit.compare.made import decoded, row


def test_every_compared_token_is_a_line() -> None:
    tops = (((1, -0.5), (2, -0.75)), ((3, -0.25), (4, -1.25)))
    ours = [row(4, [1, 4, 9], "b", 2, logprobs=(-0.5, -0.625, -1.0), top=(tops[0], ((4, -0.625), (3, -0.75)), tops[0]))]
    theirs = [row(4, [1, 3, 9], "a", 2, logprobs=(-0.53125, -0.25, -1.0), top=(*tops, tops[0]))]
    lines = token_table(ours, theirs).to_pylist()
    assert len(lines) == 2  # up to and including the flip
    first, flip = lines
    assert first == {
        "arm": "b", "against": "a", "round": 2, "against_round": 2, "row_id": 4, "position": 0,
        "token": 1, "against_token": 1, "logprob": -0.5, "against_logprob": -0.53125, "difference": 0.03125,
        "ulp": 2**19, "equal": False, "top1": 1, "against_top1": 1, "top1_equal": True, "margin": 0.25,
    }  # fmt: skip
    assert (flip["token"], flip["against_token"], flip["top1_equal"], flip["margin"]) == (4, 3, False, 1.0)
    assert (flip["logprob"], flip["against_logprob"]) == (-0.625, -0.25)
    assert (flip["difference"], flip["ulp"], flip["equal"]) == (None, None, None)  # two different tokens


def test_what_is_not_told_is_null_and_what_is_no_number_is_nan() -> None:
    lines = token_table([row(0, [1], "b", logprobs=(math.nan,))], [row(0, [1], "a")]).to_pylist()
    assert math.isnan(lines[0]["logprob"])
    assert all(lines[0][name] is None for name in ("against_logprob", "equal", "top1", "top1_equal", "margin", "ulp"))
    untold = token_table([row(0, text="x", arm="b", logprobs=(-0.5,))], [row(0, text="x", arm="a", logprobs=(-0.5,))])
    assert untold.to_pylist()[0]["token"] is None
    assert untold.to_pylist()[0]["equal"] is True


def test_the_table_and_the_comparison_tell_the_same() -> None:
    ours, theirs = decoded("b", noise=1e-2, seed=3), decoded("a")
    table, found = token_table(ours, theirs), compare(ours, theirs)
    assert table.schema.equals(SCHEMA)
    equal = table["equal"].drop_null()
    assert (sum(equal.to_pylist()), len(equal)) == found.logprob_equal[:2]
    assert max(table["difference"].drop_null().to_pylist()) == found.shift[-1]
    led = table["top1_equal"].to_pylist()
    assert (sum(led), len(led)) == found.top1_equal[:2]
    flips = [line for line in table.to_pylist() if line["token"] != line["against_token"]]
    assert {(line["row_id"], line["position"]) for line in flips} == {(f.row_id, f.position) for f in found.flips}
    assert {(line["row_id"], line["margin"]) for line in flips} == {(f.row_id, f.margin) for f in found.flips}


def test_tables_are_written_one_after_another(tmp_path: Path) -> None:
    baseline, made = decoded("a", rows=5), []

    def tables() -> object:
        for name in ("b", "c"):
            made.append(name)
            yield from token_tables(decoded(name, rows=5), baseline)
            assert not (tmp_path / "tokens.parquet").exists()

    assert write_tokens(tmp_path / "tokens.parquet", tables()) == 2 * 5 * 24
    stored = pq.read_table(tmp_path / "tokens.parquet")
    assert stored.num_rows == 240
    assert set(stored["arm"].to_pylist()) == {"b", "c"}
    assert [path.name for path in tmp_path.iterdir()] == ["tokens.parquet"]


def test_a_file_that_was_not_finished_does_not_appear(tmp_path: Path) -> None:
    def tables() -> object:
        yield token_table(decoded("b", rows=2), decoded("a", rows=2))
        raise RuntimeError("gone")

    with pytest.raises(RuntimeError, match="gone"):
        write_tokens(tmp_path / "tokens.parquet", tables())
    assert list(tmp_path.iterdir()) == []


def test_nothing_makes_an_empty_file_with_all_columns(tmp_path: Path) -> None:
    assert token_table([], []).schema.equals(SCHEMA)
    assert list(token_tables([], [])) == []
    assert write_tokens(tmp_path / "tokens.parquet", [token_table([], [])]) == 0
    assert pq.read_schema(tmp_path / "tokens.parquet").names == SCHEMA.names


def test_repeats_have_both_rounds() -> None:
    table = repeat_table([row(0, [7], "a", number) for number in range(3)])
    assert table.select(["round", "against_round"]).to_pylist() == [
        {"round": 1, "against_round": 0},
        {"round": 2, "against_round": 0},
        {"round": 2, "against_round": 1},
    ]
    assert isinstance(table, pa.Table)
