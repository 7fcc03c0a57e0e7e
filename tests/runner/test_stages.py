"""The stages as plain functions over tables, without Ray."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from proctor.images import decode
from proctor.images.budget import PixelBudget
from proctor.images.rules import ImageRules
from proctor.results import Ledger, Reconciliation
from proctor.runner.blocks import INFERRED, PREPARED, TALLY, table_of
from proctor.runner.finish import Desk, finish
from proctor.runner.outcome import ExitCode, exit_code
from proctor.runner.prepare import PrepareSetup, prepare
from proctor.runner.progress import Rate
from proctor.sources.base import BLOCK_FIELDS
from proctor.spec import ClassificationTaskSpec, ColumnsSpec, ExactTaskSpec
from proctor.tasks import Task
from proctor.tasks.registry import make_task
from tests.images.corpus import encoded, exif, noise

COLUMNS = ColumnsSpec(images=["image"], target="target", sample_id="key")


@pytest.fixture
def task() -> Task:
    return make_task(ExactTaskSpec(kind="exact", prompt="what is {key}?"), COLUMNS)


def jpeg() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (32, 32), "red").save(buffer, "JPEG")
    return buffer.getvalue()


def source_block(*rows: dict[str, Any]) -> pa.Table:
    columns = [("image", pa.large_binary()), ("key", pa.string()), ("target", pa.string())]
    schema = pa.schema([*BLOCK_FIELDS, *(pa.field(*column) for column in columns)])
    return pa.Table.from_pylist(list(rows), schema=schema)


def inferred(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=INFERRED)


def test_prepare_keeps_every_row_in_order_and_charges_each_fault_to_its_row(task: Task) -> None:
    block = source_block(
        {"row_id": 5, "image": jpeg(), "key": "five", "target": "5"},
        {"row_id": 6, "image": jpeg()[:40], "key": "six", "target": "6"},
        {"row_id": 7, "error_kind": "read.corrupt", "error_message": "bad shard"},
        {"row_id": 8, "image": jpeg(), "key": "eight", "target": None, "notice": "more rows than its index says"},
    )
    prepared = prepare(block, setup=PrepareSetup(task, COLUMNS, 60.0))
    assert prepared.schema.equals(PREPARED)
    rows = prepared.to_pylist()
    assert [row["row_id"] for row in rows] == [5, 6, 7, 8]
    assert [row["error_kind"] for row in rows] == [None, "prepare.decode", "read.corrupt", None]
    assert rows[1]["error_message"].startswith("image 1 of 1: truncated JPEG")
    assert rows[0]["images"] == [jpeg()]
    assert rows[1]["images"] is None
    assert json.loads(rows[0]["prompt"]) == [
        {"role": "user", "parts": [{"type": "image"}, {"type": "text", "text": "what is five?"}]}
    ]
    assert (rows[0]["target"], rows[3]["target"]) == ('"5"', None)
    assert rows[3]["notice"] == "more rows than its index says"
    assert [row["sample_id"] for row in rows] == ["five", "six", None, "eight"]


def test_what_is_done_to_images_stands_in_the_record(task: Task, tmp_path: Path) -> None:
    turned = encoded(noise(size=(40, 30)), "JPEG", exif=exif(6))
    block = source_block(
        {"row_id": 1, "image": turned, "key": "turned", "target": "x"},
        {"row_id": 2, "image": jpeg(), "key": "plain", "target": "x"},
    )
    rules = ImageRules(max_pixels=40 * 30, budget=PixelBudget(1024))
    rows = prepare(block, setup=PrepareSetup(task, COLUMNS, 60.0, images=rules)).to_pylist()
    told = "image 1: EXIF orientation 6 applied, resized from 30 x 40 to 27 x 36"
    assert [row["conversions"] for row in rows] == [told, None]
    assert decode(rows[0]["images"][0]).size == (27, 36)
    assert rows[1]["images"] == [jpeg()]
    answered = [{k: v for k, v in row.items() if k != "images"} | {"answer": "x"} for row in rows]
    finish(inferred(*answered), desk=Desk(str(tmp_path), "ck", 1, task, 60.0))
    assert pq.read_table(tmp_path / "results").column("conversions").to_pylist() == [told, None]
    smaller = PrepareSetup(task, COLUMNS, 60.0, images=ImageRules(max_pixels=1100))
    kinds = prepare(block, setup=smaller)["error_kind"].to_pylist()
    assert kinds == ["prepare.decode", None]


def test_finish_writes_final_records_and_leaves_retryable_ones_open(task: Task, tmp_path: Path) -> None:
    desk = Desk(str(tmp_path), "ck", 2, task, 60.0)
    block = inferred(
        {"row_id": 1, "answer": "one", "target": '"one"', "token_ids": [4, 5], "logprobs": [-0.5, -0.25]},
        {"row_id": 2, "answer": "two", "target": '"one"', "token_ids": [4]},
        {"row_id": 3, "error_kind": "infer.empty", "error_message": "blank", "target": '"x"'},
        {"row_id": 4, "error_kind": "engine.init_failed", "error_message": "no memory"},
    )
    tally = finish(block, desk=desk)
    assert tally.schema.equals(TALLY)
    assert tally.to_pylist() == [
        {
            "rows": 4,
            "answered": 2,
            "output_tokens": 3,
            "errors": '{"infer.empty": 1}',
            "retries": '{"engine.init_failed": 1}',
            "trouble": None,
        }
    ]
    records = pq.read_table(tmp_path / "results").to_pylist()
    assert [(r["row_id"], r["answer"], r["error_kind"], r["correct"]) for r in records] == [
        (1, "one", None, True),
        (2, "two", None, False),
        (3, None, "infer.empty", None),
    ]
    assert all(r["checkpoint"] == "ck" and r["sweep"] == 2 and r["finished_at"] for r in records)
    assert records[0]["logprobs"] == [-0.5, -0.25]
    (attempt,) = pq.read_table(tmp_path / "attempts").to_pylist()
    assert (attempt["row_id"], attempt["error_kind"], attempt["sweep"]) == (4, "engine.init_failed", 2)


def test_an_answer_whose_marking_failed_is_kept_in_the_history(tmp_path: Path) -> None:
    labels = make_task(ClassificationTaskSpec(kind="classification", labels=["a", "b"]), ColumnsSpec(target="target"))
    block = inferred({"row_id": 1, "answer": "a", "target": '"no such label"', "sample_id": "k1"})
    finish(block, desk=Desk(str(tmp_path), "ck", 1, labels, 60.0))
    (recorded,) = pq.read_table(tmp_path / "results").to_pylist()
    assert (recorded["answer"], recorded["error_kind"]) == (None, "score.failed")
    (kept,) = pq.read_table(tmp_path / "attempts").to_pylist()
    assert (kept["answer"], kept["error_kind"], kept["sample_id"]) == ("a", "score.failed", "k1")


def test_finishing_a_block_again_overwrites_it(task: Task, tmp_path: Path) -> None:
    block = inferred({"row_id": 1, "answer": "one", "target": '"one"'})
    for _ in range(2):
        finish(block, desk=Desk(str(tmp_path), "ck", 1, task, 60.0))
    assert pq.read_table(tmp_path / "results")["row_id"].to_pylist() == [1]


def test_a_stage_that_loses_a_row_is_caught() -> None:
    with pytest.raises(RuntimeError, match="given 2 rows and returned 1"):
        table_of([{"row_id": 1}], PREPARED, 2)


@pytest.mark.parametrize(
    ("ledger", "interrupted", "code"),
    [
        (Ledger("a", expected=10, answered=10), False, ExitCode.COMPLETE),
        (Ledger("a", expected=10, answered=9, errors={"infer.empty": 1}), False, ExitCode.COMPLETE),
        (Ledger("a", expected=10, answered=8, errors={"infer.empty": 2}), False, ExitCode.TOO_MANY_ERRORS),
        (Ledger("a", expected=10, answered=9, unanswered={"lost": 1}), False, ExitCode.INCOMPLETE),
        (Ledger("a", expected=10, answered=9, missing=1), True, ExitCode.INTERRUPTED),
        (Ledger("a", expected=10, answered=10), True, ExitCode.COMPLETE),
        (Ledger("a", expected=10, answered=10, duplicate=1), False, ExitCode.INCOMPLETE),
        (Ledger("a", expected=10, answered=10, unexpected=1), False, ExitCode.INCOMPLETE),
        (Ledger("a", expected=10, answered=10, notices=["more rows"]), False, ExitCode.INCOMPLETE),
    ],
)
def test_the_exit_code_follows_from_the_ledger(ledger: Ledger, interrupted: bool, code: ExitCode) -> None:
    account = Reconciliation([Ledger("b", expected=1, answered=1), ledger])
    assert exit_code(account, 0.1, interrupted=interrupted) == code
    assert Reconciliation.from_json(json.loads(json.dumps(account.to_json()))) == account


def test_the_rate_counts_a_window_of_time() -> None:
    rate = Rate(window=1000.0)
    assert rate.value() == 0.0
    rate.add(10)
    assert rate.value() > 0
    assert Rate(window=-1.0).value() == 0.0
