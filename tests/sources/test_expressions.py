from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from proctor.rows import ErrorKind, Failure, Sample, UserError
from proctor.sources.columns import check_columns
from proctor.sources.expressions import MOST_BYTES, bind, compute
from proctor.sources.jsonl import JsonlSource
from proctor.sources.jsonrows import JSON_METADATA
from proctor.sources.parquet import ParquetSource
from proctor.sources.registry import make_source
from proctor.sources.samples import Unprepared, to_samples
from proctor.spec import ColumnsSpec, ParquetSourceSpec
from proctor.tasks.prompting import Prompting
from tests.sources.support import picture, read_blocks, write_jsonl

PICTURE = {"bytes": b"x", "path": "p"}
TABLE = pa.table(
    {
        "row_id": [5, 6, 7],
        "question": ["1", "x", None],
        "Image": [PICTURE] * 3,
        "n": [1, 2, 3],
        "chat": [[{"from": "user", "value": f"v{n}"}] for n in range(3)],
        "images": [[PICTURE, PICTURE]] * 3,
        "text": ['{"a": [1, {"b": 2}]}'] * 3,
        "half": pa.array([1, 2, 3], pa.float16()),
    }
)
SCHEMA = pa.schema(list(TABLE.schema)[1:])
THERE = "(the source has: question, Image, n, chat, images, text, half)"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("=concat('Q: ', question)", ["Q: 1", "Q: x", "Q: "]),
        ("=image.bytes", [b"x"] * 3),
        ("=chat[1].value", ["v0", "v1", "v2"]),
        ("=[x.bytes for x in images]", [[b"x", b"x"]] * 3),
        ("=list_transform(images, lambda x: x.path)", [["p", "p"]] * 3),
        ("=text->>'$.a[1].b'", ["2"] * 3),
        ("=concat('row-', row_id)", ["row-5", "row-6", "row-7"]),
        ("='the same'", ["the same"] * 3),
        ("=case when n = 1 then 'one' else question end", ["one", "x", None]),
        ("=n::varchar || '!'", ["1!", "2!", "3!"]),
        ("=try_cast(question as int)", [1, None, None]),
        ("=n + 1 -- and a remark", [2, 3, 4]),
        ("=list_max([n, 2])", [2, 2, 3]),
        ("=if(n > 1, 'many', 'one')", ["one", "many", "many"]),
    ],
)
def test_an_expression_has_a_value_for_each_row(text: str, values: list[Any]) -> None:
    field = bind(SCHEMA, text, "here")
    found = compute(TABLE, text)
    assert found.cells.to_pylist() == values
    assert found.faults == {}
    assert (found.field.name, found.field.type) == (text, field.type)


def test_json_stays_json() -> None:
    assert bind(SCHEMA, "=text->'$.a'", "here").metadata == JSON_METADATA
    assert bind(SCHEMA, "=text->>'$.a'", "here").metadata is None


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("=", "there is nothing behind the ="),
        ("=zzz", 'Referenced column "zzz" not found'),
        ("=question.x", "Cannot extract field 'x' from expression \"question\" because it is not a struct"),
        ("=f(", 'syntax error at or near "as"'),
        ("=n; drop table block", 'syntax error at or near ";"'),
        ("=n) as value from block; select (1", "not one expression"),
        ("=n) as value from block where (n > 1", None),
        ("=n) as value from read_text('/etc/passwd') as block where (true", None),
        ("=n) as value from range(9) block(n) where (true", None),
        ("=(select 1)", "no subquery here: an expression sees the columns of one row"),
        (
            "=(select content from read_text('/etc/passwd'))",
            "no subquery here: an expression sees the columns of one row",
        ),
        ("=n in (select 1)", "no subquery here: an expression sees the columns of one row"),
        ("=read_text('/etc/passwd')", "there is no function read_text() of the values of a row"),
        ("=getenv('HOME')", "there is no function getenv() of the values of a row"),
        ("=sum(n)", "there is no function sum() of the values of a row"),
        ("=unnest([1, 2])", "there is no function unnest() of the values of a row"),
        ("=geomean(n)", "an aggregate: an expression sees one row at a time"),
        ("=row_number() over ()", "no window here: an expression sees the columns of one row"),
        ("=*", "no star here: an expression sees the columns of one row"),
        ("=columns('n')", "no star here: an expression sees the columns of one row"),
        ("=?", "no parameter here: an expression sees the columns of one row"),
        ("=random() < 0.5", "random() gives another value each time"),
        ("=strftime(now(), '%Y')", "now() gives another value each time"),
        ("=current_timestamp", "current_timestamp gives another value each time"),
        ("=ago('1 day'::interval)", "ago() gives another value each time"),
        ("=half", "Unsupported Internal Arrow Type e"),
    ],
)
def test_what_is_no_expression_over_a_row_is_refused_before_the_run(text: str, what: str | None) -> None:
    with pytest.raises(UserError) as caught:
        bind(SCHEMA, text, "source.columns.target")
    message = str(caught.value)
    assert message.startswith(f"source.columns.target: {text!r}: {what or ''}")
    assert message.endswith(THERE)
    assert "\n" not in message


def test_no_expression_reaches_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    for text in ("=glob('*')", f"=read_blob('{tmp_path}/secret')", f"=(from '{tmp_path}/secret')"):
        with pytest.raises(UserError):
            bind(SCHEMA, text, "here")


def test_a_row_that_fails_costs_itself() -> None:
    texts = [str(n) for n in range(300)]
    texts[17], texts[299] = "seventeen", "last"
    found = compute(pa.table({"row_id": range(300), "t": texts}), "=cast(t as int) * 2")
    assert found.cells.to_pylist() == [None if n in (17, 299) else 2 * n for n in range(300)]
    assert sorted(found.faults) == [17, 299]
    assert found.faults[17].startswith("Could not convert string 'seventeen' to INT32")


def test_a_row_that_is_not_utf8_costs_itself() -> None:
    bad = pa.array([b"a", b"\xff", b"c"]).view(pa.string())
    found = compute(pa.table({"row_id": [0, 1, 2], "t": bad}), "=t || '!'")
    assert [found.cells[row].as_py() for row in (0, 2)] == ["a!", "c!"]
    with pytest.raises(UnicodeDecodeError):  # which is the row's failure, in `to_samples`
        found.cells[1].as_py()


def test_more_than_one_value_is_none() -> None:
    found = compute(TABLE, "=generate_subscripts([1, 2], 1)")
    assert found.faults == dict.fromkeys(range(3), "more or fewer values than one")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            ColumnsSpec(images=["=n"]),
            "source.columns.images[0]: column '=n' is int64, which cannot be an image (images are bytes, text (base64, "
            "data URI, relative path), structs of bytes and path, or lists of these)",
        ),
        (ColumnsSpec(prompt="=n + 1"), "source.columns.prompt: column '=n + 1' is int64, not text"),
        (ColumnsSpec(prompt="=text->'$.a'"), "source.columns.prompt: column \"=text->'$.a'\" is JSON, not text"),
        (
            ColumnsSpec(sample_id="=image"),
            "source.columns.sample_id: column '=image' is struct<bytes: binary, path: st",
        ),
    ],
)
def test_an_expression_of_the_wrong_type_is_named(columns: ColumnsSpec, message: str) -> None:
    with pytest.raises(UserError) as caught:
        check_columns(SCHEMA, columns)
    assert str(caught.value).startswith(message)


def test_samples_have_computed_images_prompts_targets_and_keys(tmp_path: Path) -> None:
    rows = [
        {
            "id": n,
            "image": {"bytes": picture(n), "path": None},
            "more": [{"bytes": picture(n + 1), "path": None}],
            "chat": [{"value": f"Question {n}?"}, {"value": "a"}],
            "label": "7" if n else "none",
        }
        for n in range(3)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    columns = ColumnsSpec(
        images=["=image.bytes", "=[x.bytes for x in more]"],
        sample_id="=concat('k', id)",
        target="=label::int",
        prompt="=chat[1].value",
    )
    source = make_source(ParquetSourceSpec(kind="parquet", path=str(tmp_path), columns=columns))
    check_columns(source.columns(), columns)
    (block,) = read_blocks(source)
    broken, *samples = to_samples(block, columns)
    assert isinstance(broken, Unprepared)
    assert (broken.row_id, broken.sample_id) == (0, "k0")
    assert broken.failure.kind is ErrorKind.PREPARE_FAILED
    assert broken.failure.message.startswith("column '=label::int': Could not convert string 'none' to INT32")
    for n, sample in enumerate(samples, 1):
        assert isinstance(sample, Sample)
        assert (sample.sample_id, sample.images) == (f"k{n}", (picture(n), picture(n + 1)))
        assert sample.fields["=label::int"] == 7
        assert sample.fields["id"] == n
        (message,) = Prompting("", None, columns.prompt).prompt(sample)
        assert message.parts[-1].text == f"Question {n}?"  # type: ignore[union-attr]


def test_a_prompt_that_cannot_be_computed_is_its_rows_failure(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": ["1", "x"]}), tmp_path / "a.parquet")
    (block,) = read_blocks(ParquetSource(tmp_path))
    _, broken = to_samples(block, ColumnsSpec(prompt="=t::int::varchar"))
    assert broken == Unprepared(
        1,
        Failure(
            ErrorKind.PREPARE_FAILED,
            "column '=t::int::varchar': Could not convert string 'x' to INT32 when casting from source column t",
        ),
    )


def test_images_inside_json(tmp_path: Path) -> None:
    uri = "data:image/png;base64,iVBORw0KGgo="
    path = write_jsonl(tmp_path / "a.jsonl", [{"chat": [{"image": uri}, {"text": "?"}]}, {"chat": []}])
    (block,) = read_blocks(JsonlSource(path))
    columns = ColumnsSpec(images=["=chat->>'$[0].image'"], prompt="=chat->>'$[1].text'")
    check_columns(block.schema, columns)
    first, second = to_samples(block, columns)
    assert isinstance(first, Sample)
    assert first.images == (b"\x89PNG\r\n\x1a\n",)
    assert isinstance(second, Unprepared)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("=1) as value from block union all select (2", "not one expression"),
        ("=" + " || ".join(["question"] * 900), None),
        ("=age(timestamp '2020-01-01')", "age() of one time gives another value each day"),
        ("=format('{:1000000000}', n)", "format() needs a constant format"),
        ("=format('{:{}}', n, 1000000000)", "format() needs a constant format"),
        ("=printf('%*d', 1000000000, n)", "printf() needs a constant format"),
        ("=repeat('x', 1000000000)", "repeat() needs constant whole numbers"),
        ("=repeat('x', n)", "repeat() needs constant whole numbers"),
        ("=repeat(repeat('x', 1000), 1000)", "repeat() of what is repeated already"),
        ("=range(1000000000)", "range() needs constant whole numbers"),
    ],
)
def test_what_grows_without_a_bound_or_is_too_deep_is_refused(text: str, what: str | None) -> None:
    with pytest.raises(UserError) as caught:
        bind(SCHEMA, text, "here")
    assert what is None or what in str(caught.value)


def test_deep_parentheses_are_refused_or_computed() -> None:
    text = "=" + "(" * 500 + "n" + ")" * 500
    try:
        assert bind(SCHEMA, text, "here").type == pa.int64()
    except UserError as error:
        assert "\n" not in str(error)  # noqa: PT017 (which of the two depends on DuckDB's version)


def test_bounded_formats_and_repetitions_are_computed() -> None:
    assert compute(TABLE, "=format('{:3}|{}', n, question)").cells.to_pylist()[:2] == ["  1|1", "  2|x"]
    assert compute(TABLE, "=repeat('ab', 3)").cells.to_pylist() == ["ababab"] * 3
    assert compute(TABLE, "=lpad(n::text, 4, '0')").cells.to_pylist() == ["0001", "0002", "0003"]
    bind(SCHEMA, "=range(3)", "here")


def test_columns_that_differ_in_case_only_are_refused() -> None:
    schema = pa.schema({"A": pa.int64(), "a": pa.int64(), "b": pa.int64()})
    for text in ("=A", "=a + 1", "=block.A"):
        with pytest.raises(UserError, match="columns 'A' and 'a' differ in case only"):
            bind(schema, text, "here")
    assert bind(schema, "=B", "here").type == pa.int64()


def test_a_value_above_the_limit_costs_its_row() -> None:
    texts = ["x", "y" * (MOST_BYTES // 2 + 1), "z"]
    table = pa.table({"row_id": [0, 1, 2], "t": texts})
    found = compute(table, "=t || t")
    assert list(found.faults) == [1]
    assert "bytes; at most" in found.faults[1]
    assert found.cells.to_pylist() == ["xx", None, "zz"]


def test_times_are_in_utc_wherever_the_machine_is() -> None:
    code = """
import pyarrow as pa
from proctor.sources.expressions import compute
table = pa.table({"row_id": [0]})
print(compute(table, "=to_timestamp(0)::text").cells.to_pylist())
"""
    environment = {**os.environ, "TZ": "America/New_York"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['1970-01-01 00:00:00+00']"
