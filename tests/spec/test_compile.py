from __future__ import annotations

from typing import Any

import pytest

from proctor.engines import EngineConfig
from proctor.engines.compiling.settings import Compile, EncoderSwitches
from proctor.engines.config import engine_config
from proctor.rows import UserError
from proctor.spec import CompileSpec, VllmCompileSpec, build_spec, differences


def spec_of(plain: dict[str, Any], kind: str, block: dict[str, Any] | None) -> Any:
    engine = {"kind": kind, "checkpoints": ["models/one"]}
    return build_spec({**plain, "engine": engine if block is None else {**engine, "compile": block}})


def config_of(plain: dict[str, Any], kind: str, block: dict[str, Any] | None) -> EngineConfig:
    spec = spec_of(plain, kind, block)
    return engine_config(spec.engine, spec.engine.checkpoints[0])


@pytest.mark.parametrize("kind", ["transformers", "vllm"])
def test_without_the_block_nothing_is_compiled(plain: dict[str, Any], kind: str) -> None:
    config = config_of(plain, kind, None)
    assert (config.compile, config.encoder) == (None, None)


def test_an_empty_block_compiles_the_blocks(plain: dict[str, Any]) -> None:
    assert config_of(plain, "transformers", {}).compile == Compile(targets=("blocks",))


def test_it_arrives_as_it_was_written(plain: dict[str, Any]) -> None:
    block = {"targets": ["merger", "*.mlp"], "backend": "aot_eager", "dynamic": None, "fullgraph": False}
    config = config_of(plain, "transformers", {**block, "recompile_limit": 3})
    assert config.compile == Compile(("merger", "*.mlp"), "aot_eager", None, False, 3)
    assert config.encoder is None


def test_vllms_own_switches_arrive_too(plain: dict[str, Any]) -> None:
    block = {"encoder": True, "graphs": True, "graph_budgets": [64], "graph_max_images": 4, "parallel": "data"}
    config = config_of(plain, "vllm", block)
    assert config.encoder == EncoderSwitches(True, True, (64,), 4, None, "data")
    assert config.compile is None


@pytest.mark.parametrize(("spec", "struct"), [(CompileSpec, Compile), (VllmCompileSpec, EncoderSwitches)])
def test_the_spec_and_the_engine_know_the_same_keys(spec: Any, struct: Any) -> None:
    assert list(spec.model_fields) == list(struct.__struct_fields__)


@pytest.mark.parametrize(
    ("kind", "block", "words"),
    [
        ("transformers", {"targets": []}, "leave out `compile`"),
        ("transformers", {"encoder": True}, "encoder"),
        ("transformers", {"recompile_limit": 0}, "recompile_limit"),
        ("transformers", {"backend": "indctor"}, "backend"),
        ("vllm", {"targets": ["blocks"]}, "targets"),
        ("vllm", {"graph_budgets": [64]}, "no effect without `graphs: true`"),
        ("vllm", {"graphs": True, "graph_budgets": [0]}, "graph_budgets"),
        ("scripted", {}, "compile"),
    ],
)
def test_what_makes_no_sense_is_refused(plain: dict[str, Any], kind: str, block: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as caught:
        spec_of(plain, kind, block)
    assert words in str(caught.value)


def test_a_run_that_compiles_is_another_run(plain: dict[str, Any]) -> None:
    """Compiled code computes other bits."""
    assert differences(spec_of(plain, "transformers", None), spec_of(plain, "transformers", {}))
