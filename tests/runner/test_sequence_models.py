"""Real checkpoints one after another in one engine: the same records as with an engine started for each."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from proctor.api import run
from proctor.demo.dataset import write_dataset
from proctor.demo.weights import model_dirs
from proctor.rows import UserError
from proctor.runner.exam import Exam
from proctor.runner.outcome import RunOutcome
from proctor.spec import RunSpec, build_spec
from tests.engines.conftest import vllm_python

__all__ = ["vllm_python"]  # fixture

pytestmark = [pytest.mark.slow, pytest.mark.model]
ROWS = 24


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    found = list(model_dirs(tmp_path_factory.mktemp("models")).values())
    if not found:
        pytest.skip("the demo's weights are not in this source tree")
    return found


def spec_of(folder: Path, models: list[Path], name: str, **engine: Any) -> RunSpec:
    data = folder / "data"
    if not data.exists():
        write_dataset(data, ROWS, first_scene=70_000, corrupt={})
    return build_spec(
        {
            "run_dir": str(folder / name),
            "source": {"kind": "mds", "path": str(data), "columns": {"images": ["frames"], "target": "target"}},
            "engine": {
                "kind": "transformers",
                "checkpoints": [str(model) for model in models],
                "batch_size": 8,
                "env": {"OMP_NUM_THREADS": "1"},
                **engine,
            },
            "task": {"kind": "driving"},
            "sampling": {"max_tokens": 20, "logprobs": True},
        }
    )


def records(outcome: RunOutcome) -> dict[tuple[str, int], tuple[Any, ...]]:
    parts = Path(outcome.run.location, "results").glob("part-*.parquet")
    rows = [row for part in parts for row in pq.read_table(part).to_pylist()]
    found = {
        (row["checkpoint"], row["row_id"]): (row["answer"], tuple(row["token_ids"]), tuple(row["logprobs"]))
        for row in rows
    }
    assert len(found) == len(rows)
    return found


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
@pytest.mark.timeout(600)
def test_checkpoints_in_sequence_answer_as_engines_of_their_own(tmp_path: Path, models: list[Path]) -> None:
    known = str(tmp_path / "known")
    # Of the second checkpoint nothing is known yet, so an engine of its own is started with it.
    started = run(spec_of(tmp_path, models[-2:], "started", mode="sequential", fingerprints=known))
    swapped = run(spec_of(tmp_path, models[-2:], "swapped", mode="sequential", fingerprints=known))
    assert (started.exit_code, swapped.exit_code) == (0, 0)
    for outcome, starts, swaps in ((started, 2, 0), (swapped, 1, 1)):
        told = [event.kind for event in outcome.run.events()]
        assert (told.count("engine.loaded"), told.count("engine.swapped")) == (starts, swaps)
    assert len(records(started)) == 2 * ROWS
    # Batches form by what is there when the engine has room, and a batch may change last digits: texts have to agree.
    texts = [{key: value[0] for key, value in records(outcome).items()} for outcome in (started, swapped)]
    assert texts[0] == texts[1]
    by_checkpoint = {name: [text for (ck, _), text in texts[0].items() if ck == name] for name, _ in texts[0]}
    assert len({tuple(value) for value in by_checkpoint.values()}) == 2, (
        "the checkpoints have to differ to show anything"
    )


@pytest.mark.ray
@pytest.mark.vllm
@pytest.mark.usefixtures("local_ray")
@pytest.mark.timeout(900)
def test_vllm_takes_over_a_checkpoint_in_a_run(tmp_path: Path, models: list[Path], vllm_python: Path) -> None:
    """The second checkpoint is the first under another name, so that one start is enough to prove the swap to it.

    That other weights are taken over, to the last bit, is shown where engines are.
    """
    first, again = models[-1], Path(shutil.copytree(models[-1], tmp_path / "again"))
    vllm: dict[str, Any] = {
        "kind": "vllm",
        "python": str(vllm_python),
        "dtype": "float32",
        "max_model_len": 512,
        "options": {"kv_cache_memory_bytes": 2**25},
    }
    outcome = run(spec_of(tmp_path, [first, again], "run", mode="sequential", **vllm))
    assert outcome.exit_code == 0, outcome.reasons
    told = {event.kind: event.message for event in outcome.run.events()}
    assert told["engine.swapped"].startswith(f"{again}: proven by its fingerprint")
    assert not told.keys() & {"engine.swap_skipped", "engine.swap_failed", "engine.unsteady", "engine.restarted"}
    texts = {key: value[0] for key, value in records(outcome).items()}
    assert len(texts) == 2 * ROWS
    assert all(texts[again.name, row] == texts[first.name, row] != "" for row in range(ROWS))


def test_another_architecture_is_found_before_the_run(tmp_path: Path, models: list[Path]) -> None:
    other = tmp_path / "other"
    shutil.copytree(models[0], other)
    config = json.loads((other / "config.json").read_text())
    config["text_config"]["num_hidden_layers"] += 1
    (other / "config.json").write_text(json.dumps(config))
    spec = spec_of(tmp_path, [models[-1], other], "run", mode="sequential")
    with pytest.raises(UserError, match=r"other cannot follow .*num_hidden_layers") as caught:
        Exam.of(spec).check_engines()
    assert caught.value.where == "engine.checkpoints"
    assert not (tmp_path / "run").exists()
