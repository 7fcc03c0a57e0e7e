"""Whether a model of 8 billion parameters fits cards of 24 and of 80 GB."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proctor.capacity.cluster import Cluster, Node
from proctor.capacity.engines import row_need
from proctor.capacity.gpu import GpuFit, fit_gpu
from proctor.capacity.model import Model, read_model
from proctor.capacity.planning import plan_with
from proctor.spec import RunSpec
from tests.capacity.facts import facts, spec
from tests.capacity.models import PARAMETERS_8B, QWEN3_VL_8B, model_directory

GB = 10**9
H100, L4 = 81_559 << 20, 23_034 << 20


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return read_model(str(model_directory(tmp_path / "m", QWEN3_VL_8B, {"w": ("BF16", [PARAMETERS_8B])})), vllm=True)


def vllm(**engine: Any) -> RunSpec:
    plain = {"kind": "vllm", "checkpoints": ["/m"], "gpus_per_replica": 1.0, "batch_size": 16}
    return spec(engine={**plain, **engine})


def fit(model: Model, gpu: int | None, **engine: Any) -> GpuFit:
    return fit_gpu(vllm(**engine), model, row_need(model, facts().sample), gpu)


def test_the_cache_is_what_weights_and_activations_leave(model: Model) -> None:
    found = fit(model, H100, max_model_len=8192)
    figures = {figure.name: figure.value for figure in found.figures}
    assert figures["weights of a rank"] == model.weight_bytes
    assert figures["key-value cache of a token"] == 147_456
    room = 0.92 * H100 - sum(
        figures[name] or 0 for name in ("weights of a rank", "activations", "CUDA context and graphs")
    )
    assert figures["room for the cache"] == pytest.approx(room)
    assert found.at_full_length == int(room // (8192 * 147_456))
    assert found.check.level == "ok"
    assert 0.5 * GB < (figures["activations"] or 0) < 6 * GB


def test_rows_of_full_length_that_do_not_all_fit_wait(model: Model) -> None:
    found = fit(model, H100, max_model_len=65_536, batch_size=64)
    assert 1 <= found.at_full_length < 64
    # the sampled rows have 2 x 220 image tokens and 100 of text, so many more of them fit
    assert found.at_row_length is not None
    assert found.at_row_length > 500
    assert found.check.level == "ok"
    assert f"{found.at_full_length} of 64 rows of full length" in found.check.formula


def test_a_model_whose_longest_row_has_no_room_is_refused_by_vllm_too(model: Model) -> None:
    found = fit(model, L4)
    assert found.max_len == 262_144
    assert (found.at_full_length, found.check.level) == (0, "fails")


def test_ranks_share_weights_and_cache(model: Model) -> None:
    one = fit(model, L4, max_model_len=8192)
    two = fit(model, L4, max_model_len=8192, options={"tensor_parallel_size": 2}, gpus_per_replica=2.0)
    weights = [found.figures[0].value for found in (one, two)]
    assert weights == [model.weight_bytes, model.weight_bytes / 2]
    assert two.at_full_length > 2 * one.at_full_length


def test_two_engines_on_one_card_have_half_of_it_each(model: Model) -> None:
    assert fit(model, H100, max_model_len=8192, gpus_per_replica=0.5).check.have == pytest.approx(0.5 * H100)


def test_memory_that_is_not_known_is_not_guessed(model: Model) -> None:
    found = fit(model, None, max_model_len=8192)
    assert (found.check.level, found.check.have) == ("unknown", None)


def gpu_cluster(gpus: int, memory: int | None) -> Cluster:
    return Cluster((Node("g", 64, 512 * GB, 100 * GB, gpus=gpus, gpu_memory=memory, gpu_type="L4"),), "test")


def test_shorter_rows_make_it_fit(model: Model) -> None:
    made = plan_with(vllm(), facts(models=(model,)), gpu_cluster(1, L4))
    assert made.verdict == "fits with these changes"
    assert [(change.key, change.before) for change in made.changes] == [("engine.max_model_len", None)]
    (change,) = made.changes
    assert change.after == 768  # 540 tokens of a prompt and 64 of an answer, a quarter more, in steps of 256
    assert [check.what for check in made.reasons] == ["gpu memory"]


def test_more_cards_make_it_fit(model: Model) -> None:
    large = vllm(dtype="float32", max_model_len=700)
    full = Model(**{**{name: getattr(model, name) for name in model.__dataclass_fields__}, "dtype": "float32"})
    made = plan_with(large, facts(models=(full,)), gpu_cluster(8, L4))
    assert made.verdict == "fits with these changes"
    after = {change.key: change.after for change in made.changes}
    assert after == {"engine.options.tensor_parallel_size": 2, "engine.gpus_per_replica": 2.0}  # 35 GB, 22 GB a card
    assert plan_with(large, facts(models=(full,)), gpu_cluster(1, L4)).verdict == "refused"


def test_an_unknown_card_is_no_reason_to_refuse(model: Model) -> None:
    made = plan_with(vllm(max_model_len=8192), facts(models=(model,)), gpu_cluster(1, None))
    assert made.verdict == "fits"
    assert [check.level for check in made.checks if check.what == "gpu memory"] == ["unknown"]


def test_a_length_that_is_not_known_is_not_guessed(model: Model) -> None:
    found = fit(replace(model, longest=0), H100)
    assert (found.check.level, found.check.formula) == ("unknown", "engine.max_model_len not given, nor in config.json")
