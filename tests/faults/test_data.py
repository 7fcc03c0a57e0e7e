"""Every malformed shard and image that is known, in whole runs: each costs its own rows, and no other."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from proctor.api import run
from proctor.rows import UserError
from proctor.sources.mds import MDSWriter
from tests.faults.helpers import mds_spec, records_of
from tests.faults.shards import NOTICED, PLAIN, SHARDS, expected, write_dataset
from tests.images.corpus import BAD, GOOD, encoded, exif, noise
from tests.sources.mds.support import edit_index

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("local_ray")]


def test_every_damage_of_a_shard_costs_the_rows_it_hits(tmp_path: Path) -> None:
    spec = mds_spec(tmp_path / "run", write_dataset(tmp_path / "data", SHARDS))
    outcome = run(spec)
    rows = records_of(outcome.run)
    assert [row["row_id"] for row in rows] == list(range(len(expected(SHARDS))))
    assert [(row["error_kind"], row["sample_id"], row["answer"]) for row in rows] == expected(SHARDS)
    assert all(row["error_message"] for row in rows if row["error_kind"])
    assert outcome.exit_code == 2
    (ledger,) = outcome.reconciliation.ledgers
    kinds = Counter(kind for kind, _, _ in expected(SHARDS))
    assert (ledger.complete, ledger.answered) == (True, kinds.pop(None))
    assert ledger.errors == kinds
    assert ledger.notices == []
    # A final error is never tried again.
    assert {row["sweep"] for row in rows} == {1}
    # Nor does the same command again find anything to do.
    assert run(spec).exit_code == 2
    assert records_of(outcome.run) == rows


def test_what_an_index_leaves_out_makes_the_run_incomplete(tmp_path: Path) -> None:
    outcome = run(mds_spec(tmp_path / "run", write_dataset(tmp_path / "data", NOTICED)))
    rows = records_of(outcome.run)
    assert [(row["error_kind"], row["sample_id"], row["answer"]) for row in rows] == expected(NOTICED)
    assert outcome.exit_code == 3
    (ledger,) = outcome.reconciliation.ledgers
    assert (ledger.answered, ledger.errors, ledger.complete) == (len(rows), {}, False)
    assert ledger.notices == [f"{number:02}/{PLAIN}: {shard.notice}" for number, shard in enumerate(NOTICED) if number]


def test_a_flipped_byte_without_a_hash_cannot_be_seen(tmp_path: Path) -> None:
    """Why hashes are worth their bytes: the row is answered, from a question that nobody asked."""
    shards = [shard for shard in SHARDS if shard.name == "flipped byte, hashed"]
    path = write_dataset(tmp_path / "data", shards)
    outcome = run(mds_spec(tmp_path / "run", path, source={"verify_hashes": False}))
    assert outcome.exit_code == 0
    answers = [row["answer"] for row in records_of(outcome.run)]
    assert answers[2] == "flipped byte, hashed: what is 3?"
    assert answers[3] == "flipped byte, hashed: what is 3?"


def test_every_malformed_image_costs_its_own_row(tmp_path: Path) -> None:
    odd = {
        "JPEG on its side": encoded(noise(), "JPEG", exif=exif(6)),
        "animation": encoded(noise("L"), "GIF", save_all=True, append_images=[noise("L").rotate(90)] * 2),
        "402 x 2": encoded(noise(size=(402, 2)), "PNG"),
    }
    images = {name: make() for name, make in GOOD.items()} | odd | {name: make() for name, (make, _) in BAD.items()}
    with MDSWriter(tmp_path / "data", {"key": "str", "question": "str", "view": "jpeg"}) as writer:
        for name, image in images.items():
            writer.write({"key": name, "question": f"what is in {name}?", "view": image})
    spec = mds_spec(tmp_path / "run", tmp_path / "data", source={"columns": COLUMNS_OF_IMAGES})
    outcome = run(spec)
    rows = records_of(outcome.run)
    assert [row["sample_id"] for row in rows] == list(images)
    assert {row["sample_id"] for row in rows if row["error_kind"] == "prepare.decode"} == set(BAD)
    assert [row["answer"] for row in rows] == [None if name in BAD else f"what is in {name}?" for name in images]
    for row in rows:
        assert (row["error_message"] or "").startswith("image 1 of 1: " if row["sample_id"] in BAD else "")
    assert (outcome.exit_code, outcome.reconciliation.complete) == (2, True)


COLUMNS_OF_IMAGES = {"images": ["view"], "sample_id": "key", "prompt": "question"}


def escaping(index: dict[str, Any]) -> None:
    index["shards"][0]["raw_data"]["basename"] = "../outside.mds"


def pickled(index: dict[str, Any]) -> None:
    for entry in index["shards"]:
        entry["column_encodings"][0] = "pkl"


def newer(index: dict[str, Any]) -> None:
    index["version"] = 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (escaping, "does not lie inside the dataset's directory"),
        (pickled, "holds pickles, which run code when loaded"),
        (newer, "version 3 is not supported, only 2"),
    ],
)
def test_an_index_that_cannot_be_trusted_starts_no_run(tmp_path: Path, change: Any, message: str) -> None:
    path = write_dataset(tmp_path / "data", SHARDS[:2])
    edit_index(path, change)
    with pytest.raises(UserError, match=message) as caught:
        run(mds_spec(tmp_path / "run", path))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_an_index_cut_short_starts_no_run(tmp_path: Path) -> None:
    path = write_dataset(tmp_path / "data", SHARDS[:2])
    text = (path / "index.json").read_text()
    (path / "index.json").write_text(text[: len(text) // 2])
    with pytest.raises(UserError, match=r"index\.json: not JSON"):
        run(mds_spec(tmp_path / "run", path))
    assert json.loads(text)["version"] == 2
    assert not (tmp_path / "run").exists()
